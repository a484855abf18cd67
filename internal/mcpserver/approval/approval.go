// Package approval asks a person at the MCP client before a call exceeds the defaults
// of the operator. The operator's maxima hold in any case: a person can only allow what
// every call could do on a server that does not ask.
//
// Only package mcpserver imports it. [New] makes an [Approvals], which has nothing to
// close. A question lasts as long as its call, and no answer is kept: the next call
// asks again.
package approval

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxNetwork bounds the network rules in a question, in bytes. A person must see all of
// them.
const maxNetwork = 500

// progressEvery is the interval of the progress notifications during a question.
const progressEvery = 5 * time.Second

// firstInputs is the first version of the protocol in which a server asks in the result
// of a call, and the client repeats the call with the answer.
const firstInputs = "2026-07-28"

// inputName is the name of the question in such a result.
const inputName = "approval"

// Policy says which excesses need the approval of a person.
type Policy struct{ Network, Limits bool }

// Approvals asks for the approvals of one server. It is safe for concurrent use.
type Approvals struct {
	policy Policy
	key    [32]byte // of the states of questions
}

// New returns the approvals of a server that asks by a policy.
func New(p Policy) *Approvals {
	a := &Approvals{policy: p}
	_, _ = rand.Read(a.key[:]) // never fails
	return a
}

// A Call is the call of a tool that may have to ask.
type Call struct {
	Principal sandbox.Principal
	Request   *mcp.CallToolRequest
	// Wait is how long the client waits for the answer to the call.
	Wait time.Duration
	// Token is the call's progress token, or nil.
	Token any
}

type callKey struct{}

// WithCall returns ctx for a call of a tool.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// Needed is the error of a call that its client must repeat with the answer of a person.
type Needed struct{ Result *mcp.CallToolResult }

func (*Needed) Error() string { return "the call needs the answer of a person" }

// Ask returns nil if an excess needs no approval or a person at the client gave it.
// where is the sandbox that it is for, or "" for a new one. Without the approval the
// error is of kind Forbidden. It wraps [*Needed] if the client must repeat the call.
func (a *Approvals) Ask(ctx context.Context, where string, x sandbox.Excess) error {
	q := question{where: where}
	if a.policy.Network {
		q.network, q.standard = x.Network, x.Default
	}
	if a.policy.Limits {
		q.limits = x.Limits
	}
	if q.network == "" && len(q.limits) == 0 {
		return nil
	}
	if len(q.network) > maxNetwork {
		return sandbox.WithHint(q.refused("these rules are too long to show a person"),
			"ask for rules of at most %d characters", maxNetwork)
	}
	c, ok := ctx.Value(callKey{}).(Call)
	if !ok || !canAsk(c.Request.ClientCapabilities()) {
		return sandbox.WithHint(q.refused("this needs the approval of a person, and this client cannot ask one"),
			"do without it, or tell the user: a client with elicitation is necessary, or an operator who starts the server without --approve %s", q.setting())
	}
	if c.Request.ProtocolVersion() >= firstInputs {
		return a.askByResult(c, q)
	}
	return q.askNow(ctx, c)
}

// canAsk reports whether a client can ask a person. A client of the first version of
// elicitation names no mode, and has forms.
func canAsk(caps *mcp.ClientCapabilities) bool {
	return caps != nil && caps.Elicitation != nil && (caps.Elicitation.Form != nil || caps.Elicitation.URL == nil)
}

// A question is what a person is asked to approve.
type question struct {
	where             string
	network, standard sandbox.Network
	limits            []string
}

// text returns the question for a person. It has only words of this server and values
// that it has checked.
func (q question) text() string {
	var b strings.Builder
	b.WriteString("The agent asks for more than the default")
	if q.where != "" {
		fmt.Fprintf(&b, " for sandbox %s", q.where)
	} else {
		b.WriteString(" for a new sandbox")
	}
	if q.network != "" {
		fmt.Fprintf(&b, "\nnetwork: %s (default %s)", q.network, q.orNone())
	}
	for _, l := range q.limits {
		b.WriteString("\n" + l)
	}
	b.WriteString("\nPrograms there may be untrusted. Do you allow it?")
	return b.String()
}

func (q question) orNone() sandbox.Network {
	if q.standard == "" {
		return sandbox.NetworkNone
	}
	return q.standard
}

// setting returns the values of the setting that made the server ask.
func (q question) setting() string {
	var names []string
	if q.network != "" {
		names = append(names, "network")
	}
	if len(q.limits) > 0 {
		names = append(names, "limits")
	}
	return strings.Join(names, ",")
}

// refused returns the error of a question without an approval.
func (q question) refused(why string) error {
	if q.network != "" {
		return sandbox.Errorf(sandbox.Forbidden, "network: %.*s: %s", maxNetwork, q.network, why)
	}
	name, _, _ := strings.Cut(q.limits[0], " ")
	return sandbox.Errorf(sandbox.Forbidden, "%s: %s: %s", name, strings.Join(q.limits, ", "), why)
}

func (q question) params() *mcp.ElicitParams {
	return &mcp.ElicitParams{
		Mode: "form", Message: q.text(),
		// The person has nothing to fill in.
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}
}

// decide returns nil if a person accepted.
func (q question) decide(r *mcp.ElicitResult) error {
	switch r.Action {
	case "accept":
		return nil
	case "decline":
		return sandbox.WithHint(q.refused("a person declined it"), "do without it; do not ask again unless the user says so")
	}
	return sandbox.WithHint(q.refused("the question was closed without an answer"), "do without it, or ask the user before you repeat the call")
}

// askNow asks while the call waits.
func (q question) askNow(ctx context.Context, c Call) error {
	asking, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	stop := c.reportWaiting(asking)
	r, err := c.Request.Session.Elicit(asking, q.params())
	stop()
	switch {
	case err == nil:
		return q.decide(r)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case asking.Err() != nil:
		return sandbox.WithHint(q.refused(fmt.Sprintf("nobody answered the question within %.0f s", c.Wait.Seconds())),
			"ask the user to be ready, and repeat the call")
	}
	return sandbox.WithHint(q.refused("the client could not ask a person: "+bounded(err.Error())), "do without it, or tell the user")
}

// bounded shortens a text of a client.
func bounded(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// reportWaiting sends progress, so that a client which waits for progress does not give
// up the call, until stop is called.
func (c Call) reportWaiting(ctx context.Context) (stop func()) {
	if c.Token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := c.Request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: c.Token, Progress: time.Since(began).Seconds(), Message: "waiting for the approval of a person",
			})
			if err != nil {
				return // the client is gone, so the call ends, too
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

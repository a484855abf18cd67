package approval

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// modern returns a call of a client of the newest version that can ask.
func modern(p sandbox.Principal, tool string) Call {
	return Call{Principal: p, Request: &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, Meta: mcp.Meta{
		mcp.MetaKeyProtocolVersion:    "2026-07-28",
		mcp.MetaKeyClientCapabilities: map[string]any{"elicitation": map[string]any{}},
	}}}}
}

// answered repeats a call with the answer and the state of a question.
func answered(c Call, action, state string) Call {
	p := *c.Request.Params
	p.InputResponses = mcp.InputResponseMap{inputName: &mcp.ElicitResult{Action: action}}
	p.RequestState = state
	c.Request = &mcp.CallToolRequest{Params: &p}
	return c
}

var internet = sandbox.Excess{Network: sandbox.NetworkInternet, Default: sandbox.NetworkNone}

// TestState uses the state of a question for other calls, and too late.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := New(Policy{Network: true}), New(Policy{Network: true})
		ask := func(a *Approvals, c Call, x sandbox.Excess) error {
			return a.Ask(WithCall(context.Background(), c), "", x)
		}
		c := modern("alice", "run_code")
		var asks *Needed
		if err := ask(a, c, internet); !errors.As(err, &asks) {
			t.Fatal(err)
		}
		state := asks.Result.RequestState
		if err := ask(a, answered(c, "accept", state), internet); err != nil {
			t.Error(err)
		}
		if err := ask(a, answered(c, "decline", state), internet); !errors.Is(err, sandbox.Forbidden) {
			t.Errorf("declined: %v", err)
		}
		for name, err := range map[string]error{
			"another principal":  ask(a, answered(modern("bob", "run_code"), "accept", state), internet),
			"another tool":       ask(a, answered(modern("alice", "run_command"), "accept", state), internet),
			"another network":    ask(a, answered(c, "accept", state), sandbox.Excess{Network: "internet,10.0.0.1:22"}),
			"another server":     ask(other, answered(c, "accept", state), internet),
			"no state":           ask(a, answered(c, "accept", ""), internet),
			"an invented state":  ask(a, answered(c, "accept", strings.Repeat("A", len(state))), internet),
			"a state cut short":  ask(a, answered(c, "accept", state[:12]), internet),
			"no text of a state": ask(a, answered(c, "accept", "?"), internet),
		} {
			if !errors.As(err, &asks) {
				t.Errorf("%s: %v, want a question", name, err)
			}
		}
		time.Sleep(answerTime + time.Second)
		if err := ask(a, answered(c, "accept", state), internet); !errors.As(err, &asks) {
			t.Errorf("late: %v, want a question", err)
		}
	})
}

// TestPolicy asks only for what the policy names, and shows a person all of it.
func TestPolicy(t *testing.T) {
	both := sandbox.Excess{Network: "internet", Limits: []string{"cpus 2 (default 1)"}}
	ctx := WithCall(t.Context(), modern("alice", "run_code"))
	for _, c := range []struct {
		policy       Policy
		x            sandbox.Excess
		shown, hides string
	}{
		{Policy{Network: true}, both, "network: internet (default none)", "cpus"},
		{Policy{Limits: true}, both, "cpus 2 (default 1)", "internet"},
		{Policy{Network: true, Limits: true}, both, "cpus 2 (default 1)", "-"},
	} {
		var asks *Needed
		if err := New(c.policy).Ask(ctx, "", c.x); !errors.As(err, &asks) {
			t.Errorf("%+v: %v", c.policy, err)
			continue
		}
		if got := asks.Result.InputRequests[inputName].(*mcp.ElicitParams).Message; !strings.Contains(got, c.shown) || strings.Contains(got, c.hides) {
			t.Errorf("%+v: %q", c.policy, got)
		}
	}
	for _, c := range []struct {
		policy Policy
		x      sandbox.Excess
	}{{Policy{}, both}, {Policy{Limits: true}, internet}, {Policy{Network: true}, sandbox.Excess{Limits: both.Limits}}, {Policy{true, true}, sandbox.Excess{}}} {
		if err := New(c.policy).Ask(ctx, "", c.x); err != nil {
			t.Errorf("%+v, %+v: %v", c.policy, c.x, err)
		}
	}
	long := sandbox.Network(strings.Repeat("a.example.com,", 40) + "internet")
	if err := New(Policy{Network: true}).Ask(ctx, "", sandbox.Excess{Network: long}); !errors.Is(err, sandbox.Forbidden) || sandbox.HintOf(err) == "" {
		t.Errorf("a policy that no person would read: %v", err)
	}
	if err := New(Policy{Network: true}).Ask(t.Context(), "", internet); !errors.Is(err, sandbox.Forbidden) {
		t.Errorf("without a call: %v", err)
	}
}

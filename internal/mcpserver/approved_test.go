package mcpserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (e *fakeEngine) CreateExcess(r sandbox.CreateRequest) (sandbox.Excess, error) {
	limits := r.Limits.Or(sandbox.DefaultLimits())
	if err := limits.Check(sandbox.Limits{MemoryBytes: 4 << 30}); err != nil {
		return sandbox.Excess{}, err
	}
	x := sandbox.Excess{Limits: limits.Above(sandbox.DefaultLimits())}
	if r.Network.WiderThan(sandbox.NetworkNone) {
		x.Network, x.Default = r.Network, sandbox.NetworkNone
	}
	return x, nil
}

func (e *fakeEngine) NetworkExcess(_ context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Excess, error) {
	sb, err := e.find(p, id)
	if err != nil || !n.WiderThan(sb.Network) {
		return sandbox.Excess{}, err
	}
	return sandbox.Excess{Network: n, Default: sandbox.NetworkNone}, nil
}

// made returns the number of sandboxes that were made.
func (e *fakeEngine) made() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.creates)
}

func approve(o *Options) { o.ApproveNetwork, o.ApproveLimits = true, true }

// A person answers the questions of a server, always with the same.
type person struct {
	action    string // or "fail" for an error of the client
	questions atomic.Int64
	last      atomic.Pointer[mcp.ElicitParams]
}

func (p *person) options() *mcp.ClientOptions {
	if p.action == "" {
		return nil
	}
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		p.questions.Add(1)
		p.last.Store(req.Params)
		if p.action == "fail" {
			return nil, errors.New("no window")
		}
		return &mcp.ElicitResult{Action: p.action}, nil
	}}
}

// connectAs connects a client with a person over a transport, in a version of the
// protocol.
func connectAs(t *testing.T, s *Server, over, version string, p *person) *mcp.ClientSession {
	t.Helper()
	if over == "stdio" {
		return serveStdioIn(t, s, "test", version, p.options())
	}
	at := serveHTTP(t, s)
	hc := &http.Client{Transport: bearer("alice")}
	var tr mcp.Transport = &mcp.StreamableClientTransport{Endpoint: at + transport.StreamablePath, HTTPClient: hc}
	if over == "sse" {
		tr = &mcp.SSEClientTransport{Endpoint: at + transport.SSEPath, HTTPClient: hc}
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, p.options()).
		Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// TestApproval asks for more than the defaults over each transport and both ways of
// asking, with each answer of a person.
func TestApproval(t *testing.T) {
	for _, over := range []struct{ transport, version string }{
		{"stdio", "2025-11-25"}, {"stdio", firstModern}, {"http", "2025-06-18"}, {"http", "2025-11-25"}, {"http", firstModern}, {"sse", "2025-11-25"},
	} {
		for action, want := range map[string]string{
			"accept":  "",
			"decline": "a person declined it",
			"cancel":  "the question was closed without an answer",
			"":        "this client cannot ask one",
		} {
			t.Run(over.transport+over.version+"/"+action, func(t *testing.T) {
				s, e := newTestServer(t, approve)
				p := &person{action: action}
				cs := connectAs(t, s, over.transport, over.version, p)
				for tool, more := range map[string]args{
					"run_code":         {"code": "out 1", "network": "pypi.org:443"},
					"run_command":      {"command": "out 1", "network": "internet"},
					"create_sandbox":   {"memory_mb": 1024, "network": "pypi.org:443"},
					"install_packages": {"packages": []string{"x"}, "network": "pypi.org:443"},
				} {
					before, asked := e.made(), p.questions.Load()
					res := callTool(t, cs, tool, more)
					if want == "" {
						if res.IsError || e.made() != before+1 || p.questions.Load() != asked+1 {
							t.Errorf("%s: %d sandboxes, %d questions: %s", tool, e.made()-before, p.questions.Load()-asked, text(res))
						}
						continue
					}
					f := structured[sandbox.Problem](t, res)
					if !res.IsError || f.Kind != sandbox.Forbidden || f.Argument != "network" || f.Hint == "" || !strings.Contains(f.Message, want) || e.made() != before {
						t.Errorf("%s: %d sandboxes: %+v", tool, e.made()-before, f)
					}
				}
				if q := p.last.Load(); action != "" && !strings.Contains(q.Message, "network: ") {
					t.Errorf("the question: %+v", q)
				}
				// The defaults need nobody.
				asked := p.questions.Load()
				if res := callTool(t, cs, "run_code", args{"code": "out 1", "network": "none"}); res.IsError || p.questions.Load() != asked {
					t.Errorf("no excess: %d questions: %s", p.questions.Load()-asked, text(res))
				}
			})
		}
	}
}

// TestApprovalOfLimits asks for one question about all excesses, and none for a request
// that the operator does not allow.
func TestApprovalOfLimits(t *testing.T) {
	s, e := newTestServer(t, func(o *Options) { o.ApproveLimits = true })
	p := &person{action: "accept"}
	cs := serveStdio(t, s, p.options())
	if res := callTool(t, cs, "create_sandbox", args{"memory_mb": 8192}); !res.IsError || p.questions.Load() != 0 {
		t.Errorf("above the maximum: %d questions: %s", p.questions.Load(), text(res))
	}
	if res := callTool(t, cs, "create_sandbox", args{"memory_mb": 1024, "lifetime_seconds": 100000, "network": "internet"}); res.IsError || p.questions.Load() != 1 || e.made() != 1 {
		t.Errorf("%d questions: %s", p.questions.Load(), text(res))
	}
	const want = "The agent asks for more than the default for a new sandbox\nmemory 1 GiB (default 512 MiB)\nlifetime 27h46m40s (default 24h0m0s)\n"
	if q := p.last.Load().Message; !strings.HasPrefix(q, want) {
		t.Errorf("the question: %q", q)
	}
}

// TestApprovalOfSetNetwork opens and closes the network of a sandbox.
func TestApprovalOfSetNetwork(t *testing.T) {
	s, e := newTestServer(t, approve)
	p := &person{action: "accept"}
	cs := serveStdio(t, s, p.options())
	r := run(t, cs, "out 1", args{"network": "pypi.org:443"})
	for _, c := range []struct {
		network   string
		questions int64
	}{{"pypi.org:443", 1}, {"none", 1}} {
		if res := callTool(t, cs, "set_network", args{"sandbox_id": r.SandboxID, "network": c.network}); res.IsError || p.questions.Load() != c.questions {
			t.Errorf("%s: %d questions: %s", c.network, p.questions.Load(), text(res))
		}
	}
	e.mu.Lock()
	e.sandboxes[r.SandboxID].Network = "pypi.org:443"
	e.mu.Unlock()
	p.action = "decline"
	res := callTool(t, cs, "set_network", args{"sandbox_id": r.SandboxID, "network": "internet"})
	if sb, err := e.Get(t.Context(), sandbox.Local, r.SandboxID); !res.IsError || err != nil || sb.Network != "pypi.org:443" {
		t.Errorf("the network is %s: %s", sb.Network, text(res))
	}
	if q := p.last.Load().Message; !strings.Contains(q, "for sandbox "+r.SandboxID) {
		t.Errorf("the question: %q", q)
	}
	// A sandbox of others is not there, so nobody is asked.
	asked := p.questions.Load()
	if res := callTool(t, cs, "set_network", args{"sandbox_id": sandbox.NewID(), "network": "internet"}); !res.IsError || p.questions.Load() != asked {
		t.Errorf("%d questions: %s", p.questions.Load()-asked, text(res))
	}
}

// TestApprovalFails has a client that fails to ask.
func TestApprovalFails(t *testing.T) {
	s, e := newTestServer(t, approve)
	p := &person{action: "fail"}
	cs := connectAs(t, s, "http", "2025-11-25", p)
	res := callTool(t, cs, "run_code", args{"code": "out 1", "network": "internet"})
	if f := structured[sandbox.Problem](t, res); !res.IsError || !strings.Contains(f.Message, "the client could not ask a person") || e.made() != 0 {
		t.Errorf("%d sandboxes: %+v", e.made(), f)
	}
}

// TestNobodyAnswers leaves a question unanswered for as long as the client waits for a
// call.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newTestServer(t, approve)
		c := newLineClient(t, s)
		c.send(strings.Replace(initialize, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
		c.lines.Scan()
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		began := time.Now()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"run_code","arguments":{"code":"out 1","network":"internet"}}}`)
		var notes int
		asked := false
		for c.lines.Scan() {
			line := c.lines.Text()
			asked = asked || strings.Contains(line, `"elicitation/create"`)
			if strings.Contains(line, "waiting for the approval of a person") {
				notes++
			}
			if strings.Contains(line, `"id":2`) && strings.Contains(line, `"result"`) {
				if waited := time.Since(began); waited != 50*time.Second || !strings.Contains(line, "nobody answered the question within 50 s") {
					t.Errorf("after %v: %s", waited, line)
				}
				break
			}
		}
		if !asked || notes < 9 || e.made() != 0 {
			t.Errorf("asked %t, %d notes, %d sandboxes", asked, notes, e.made())
		}
		c.in.Close()
		go func() {
			for c.lines.Scan() {
			}
		}()
		<-c.done
	})
}

// TestPersonsTimeCounts has a person take 30 seconds of the time for which the client
// waits for the call.
func TestPersonsTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, approve)
		cs := serveStdioIn(t, s, "test", "2025-11-25", &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			time.Sleep(30 * time.Second)
			return &mcp.ElicitResult{Action: "accept"}, nil
		}})
		began := time.Now()
		res := callTool(t, cs, "run_code", args{"code": "sleep 1h", "network": "internet", "wait_seconds": 45})
		r := structured[answer.Run](t, res)
		if waited := time.Since(began); r.Status != sandbox.RunRunning || waited != 50*time.Second {
			t.Errorf("after %v: %+v", waited, r)
		}
	})
}

// TestAnswerWithoutAQuestion sends an acceptance that the server did not ask for.
func TestAnswerWithoutAQuestion(t *testing.T) {
	s, e := newTestServer(t, approve)
	url := serveHTTP(t, s) + transport.StreamablePath
	body, headers := modernCall("run_code", `{"code":"out 1","network":"internet"}`)
	body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	answered := strings.Replace(body, `"name":"run_code"`, `"name":"run_code","inputResponses":{"approval":{"action":"accept"}},"requestState":"AAAA"`, 1)
	for _, b := range []string{body, answered} {
		got, err := io.ReadAll(post(t, url, "alice", b, headers...).Body)
		if err != nil || !strings.Contains(string(got), `"input_required"`) || e.made() != 0 {
			t.Errorf("%d sandboxes, %v: %s", e.made(), err, got)
		}
	}
}

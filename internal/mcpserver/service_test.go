package mcpserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestService starts a service: the call returns while its run goes on. The sandbox
// lists it until it is stopped.
func TestService(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "run_command", args{
		"command": "sleep 1h", "service": true, "name": "web", "restart": "always", "ready": "port:8000", "timeout_seconds": 90, "wake": "request",
	})
	r := structured[answer.Run](t, res)
	if res.IsError || r.Status != sandbox.RunRunning || r.Service == nil || r.Service.Name != "web" {
		t.Fatalf("%+v", r)
	}
	if got := text(res); !strings.Contains(got, `service "web": running, `+r.RunID+", restarts: always, so far 0") {
		t.Errorf("the text is %q", got)
	}
	want := &sandbox.ServiceRequest{Name: "web", Restart: sandbox.RestartAlways, Ready: &sandbox.ReadyCheck{Port: 8000, Timeout: 90 * time.Second}, Wake: sandbox.WakeRequest}
	if req := e.lastRequest(); cmp.Diff(want, req.Service) != "" || req.Timeout != 0 || req.KeepStdin {
		t.Errorf("asked the engine for %+v, %+v", req, req.Service)
	}
	res = callTool(t, cs, "get_sandbox", args{"sandbox_id": r.SandboxID})
	if sb := structured[sandboxResult](t, res); len(sb.Services) != 1 || sb.Services[0].ID != r.RunID || !strings.Contains(text(res), `service "web"`) {
		t.Errorf("the sandbox has %+v", sb.Services)
	}
	callTool(t, cs, "stop_run", args{"run_id": r.RunID})
	if sb := structured[sandboxResult](t, callTool(t, cs, "get_sandbox", args{"sandbox_id": r.SandboxID})); len(sb.Services) != 0 {
		t.Errorf("after the stop: %+v", sb.Services)
	}
	for name, c := range map[string]struct {
		args args
		want string
	}{
		"name":    {args{"command": "x", "name": "web"}, "name: it belongs to a service"},
		"ready":   {args{"command": "x", "service": true, "ready": "8000"}, "ready: "},
		"wake":    {args{"command": "x", "wake": "request"}, "wake: it belongs to a service"},
		"asleep":  {args{"command": "x", "service": true, "wake": "never"}, "wake: "},
		"restart": {args{"command": "x", "service": true, "restart": "often"}, "restart: "},
		"timeout": {args{"command": "x", "service": true, "timeout_seconds": 5}, "timeout_seconds: "},
	} {
		if res := callTool(t, cs, "run_command", c.args); !res.IsError || !strings.HasPrefix(text(res), c.want) {
			t.Errorf("%s: %q", name, text(res))
		}
	}
}

// TestRunAsLongAsItsSandbox: a timeout of 0 asks for the time of the sandbox, for code
// and commands. Without a timeout the engine's default counts.
func TestRunAsLongAsItsSandbox(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for tool, a := range map[string]args{"run_code": {"code": "1", "language": "python"}, "run_command": {"command": "true"}} {
		for _, timeout := range []any{0, nil} {
			want := time.Duration(0)
			delete(a, "timeout_seconds")
			if timeout != nil {
				a["timeout_seconds"], want = timeout, sandbox.Forever
			}
			callTool(t, cs, tool, a)
			if got := e.lastRequest().Timeout; got != want {
				t.Errorf("%s, timeout_seconds %v: asked the engine for %v, want %v", tool, timeout, got, want)
			}
		}
	}
}

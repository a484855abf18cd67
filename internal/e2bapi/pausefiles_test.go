package e2bapi

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPauseFiles: a pause without memory restarts the sandbox before it, and a connection
// without memory after its wake. A sandbox that runs, or is paused already, is left alone.
func TestPauseFiles(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	url := srv.URL + "/sandboxes/" + sandbox.HostID(id)
	for _, step := range []struct {
		path, body string
		status     int
		restarts   int // in all
		state      sandbox.State
	}{
		{"/pause", `{"memory":true}`, 204, 0, sandbox.Hibernated},
		{"/connect", `{"timeout":60,"memory":true}`, 201, 0, sandbox.Running},
		{"/connect", `{"timeout":60,"memory":false}`, 200, 0, sandbox.Running},
		{"/pause", `{"memory":false}`, 204, 1, sandbox.Hibernated},
		{"/connect", `{"timeout":60}`, 201, 1, sandbox.Running},
		{"/pause", ``, 204, 1, sandbox.Hibernated},
		{"/connect", `{"timeout":60,"memory":false}`, 201, 2, sandbox.Running},
	} {
		status, _, body := do(t, "POST", url+step.path, step.body, "X-API-KEY", "alice")
		if status != step.status || len(e.restarts) != step.restarts || e.boxes[id].State != step.state {
			t.Errorf("%s %s: status %d, %d restarts, %s; want %+v: %s", step.path, step.body, status, len(e.restarts), e.boxes[id].State, step, body)
		}
	}
	if status, _, _ := do(t, "POST", url+"/pause", `{"memory":false}`, "X-API-KEY", "mallory"); status != 404 {
		t.Errorf("of another principal: status %d, want 404", status)
	}
}

package engine

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Observe sends a request that only reads to the guest of a sandbox of any
// principal, and returns the guest's response as Forward does. It is no use of the
// sandbox: idle time goes on, and nothing waits for the request, so its context
// must bound it. It never wakes a sandbox. The error is of kind NotFound if this
// process does not have the sandbox. It is of kind Conflict if the sandbox
// hibernates or may rest, and with a driver whose pause takes seconds.
func (e *Engine) Observe(id string, req *http.Request) (*http.Response, error) {
	const op = "observe sandbox"
	b := e.live(id)
	if b == nil || !b.started() {
		return nil, sandbox.Wrap(request.NoSandbox(id), op, "")
	}
	b.mu.Lock()
	awake := b.state == running && b.rec.Restless && !e.features.ColdPause
	b.mu.Unlock()
	if !awake {
		return nil, sandbox.Wrap(sandbox.Errorf(sandbox.Conflict, "sandbox %s may be paused", id), op, "")
	}
	resp, err := b.guest.RoundTrip(req)
	return resp, sandbox.Wrap(err, op, "")
}

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
	if !b.observable() {
		return nil, sandbox.Wrap(sandbox.Errorf(sandbox.Conflict, "sandbox %s may be paused", id), op, "")
	}
	resp, err := b.guest.RoundTrip(req)
	return resp, sandbox.Wrap(err, op, "")
}

// Observable returns the identifiers of the sandboxes that Observe reaches.
func (e *Engine) Observable() []string {
	var ids []string
	for _, b := range e.all() {
		if b.started() && b.observable() {
			ids = append(ids, b.id)
		}
	}
	return ids
}

func (b *liveSandbox) observable() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == running && b.rec.Restless && !b.e.features.ColdPause
}

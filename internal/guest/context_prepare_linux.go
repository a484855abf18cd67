package guest

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// prepareContext imports modules in a context whose first run is to find them,
// and returns when the kernel has done so. Only a context that has had no run
// yet is prepared: its kernel has run nobody's code, and what it says is true.
func (g *Guest) prepareContext(r *http.Request, in *guestapi.PrepareRequest) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if e.program.Shell {
		return nil, errf(guestapi.CodeFailedPrecondition, "a context of %s has no modules", e.program.Language)
	}
	done := r.Context().Done()
	select {
	case <-e.turn:
	case <-done:
		return nil, errf(guestapi.CodeCanceled, "the caller left before its turn")
	}
	defer func() { e.turn <- struct{}{} }()
	e.mu.Lock()
	runs := e.runs
	e.mu.Unlock()
	if runs > 0 {
		return nil, errf(guestapi.CodeFailedPrecondition, "context %q has had a run already", e.id)
	}
	k, err := e.ensure(done)
	if err != nil {
		return nil, err
	}
	select {
	case <-k.prepared: // of a caller that left
	default:
	}
	// Written apart: a kernel that never reads must not keep the caller.
	go func() { _ = k.request(e.program.Prepare(in.Modules)) }()
	select {
	case <-k.prepared:
		return &struct{}{}, nil
	case <-k.dead:
		return nil, errf(guestapi.CodeUnavailable, "the interpreter ended while it imported")
	case <-done:
		return nil, errf(guestapi.CodeCanceled, "the caller left")
	}
}

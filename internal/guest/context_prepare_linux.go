package guest

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// prepareContext imports modules in a context before its first run, and returns
// when the kernel has imported them. It refuses a context that has had a run:
// after user code has run, the kernel's reply cannot be trusted.
func (g *Guest) prepareContext(r *http.Request, in *guestapi.PrepareRequest) (*struct{}, error) {
	e, err := g.contexts.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if e.program.Shell {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "a context of %s has no modules", e.program.Language)
	}
	done := r.Context().Done()
	select {
	case <-e.turn:
	case <-done:
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left before its turn")
	}
	defer func() { e.turn <- struct{}{} }()
	e.mu.Lock()
	runs := e.runs
	e.mu.Unlock()
	if runs > 0 {
		return nil, rpc.Errorf(guestapi.CodeFailedPrecondition, "context %q has had a run already", e.id)
	}
	k, err := e.ensure(done)
	if err != nil {
		return nil, err
	}
	select {
	case <-k.prepared: // of a caller that left
	default:
	}
	// In a goroutine: a kernel that never reads must not block the caller.
	go func() { _ = k.request(e.program.Prepare(in.Modules)) }()
	select {
	case <-k.prepared:
		return &struct{}{}, nil
	case <-k.dead:
		return nil, rpc.Errorf(guestapi.CodeUnavailable, "the interpreter ended while it imported")
	case <-done:
		return nil, rpc.Errorf(guestapi.CodeCanceled, "the caller left")
	}
}

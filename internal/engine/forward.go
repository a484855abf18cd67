package engine

import (
	"context"
	"net/http"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Forward sends a request of the guest's protocol, which package guestapi
// describes, to a sandbox. It returns the guest's response unchanged: the
// response is untrusted, and its length is not bounded. The caller must close
// the response's body; the sandbox is in use until then. Forward uses the
// request's method, path, query, headers and body. The request's context bounds
// the exchange.
//
// A program that the request starts gets the defaults, which the environment of
// the sandbox and its own request override, in this order. Its
// timeout is at most the longest timeout of a run, even if the request asks for
// more. The error is of kind
// Exhausted if the sandbox has too many runs and requests, and of kind Conflict
// if the sandbox has stopped. Forward wakes a hibernated sandbox.
func (e *Engine) Forward(p sandbox.Principal, id string, defaults sandbox.ProgramDefaults, req *http.Request) (*http.Response, error) {
	const op = "forward request"
	b, err := e.usable(req.Context(), p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	if starts := req.URL.Path == guestapi.ProcStart || req.URL.Path == guestapi.PathExecute; starts {
		if err := e.accounts.CheckRun(req.Context(), p); err != nil {
			return nil, sandbox.Wrap(err, op, "")
		}
	}
	resp, err := b.forward(req, defaults)
	return resp, sandbox.Wrap(err, op, "")
}

func (b *liveSandbox) forward(req *http.Request, defaults sandbox.ProgramDefaults) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	release, err := b.use(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	f := &forward{cancel: cancel, done: make(chan struct{})}
	if err := b.addForward(f); err != nil {
		release()
		cancel()
		return nil, err
	}
	req = req.WithContext(ctx)
	counted := func() {}
	end := sync.OnceFunc(func() {
		cancel()
		counted()
		b.mu.Lock()
		b.forwards.Delete(f)
		b.mu.Unlock()
		if req.Method != http.MethodGet {
			b.copy.Soon()
		}
		release()
		close(f.done)
	})
	if err := (request.Forward{Rules: &b.e.rules, Env: b.env, Defaults: defaults}).Adapt(req); err != nil {
		end()
		return nil, err
	}
	upload, err := b.mount.BoundForward(req)
	if err != nil {
		end()
		return nil, err
	}
	if upload != nil {
		counted = upload.Done
	}
	resp, err := b.guest.RoundTrip(req)
	if upload != nil && upload.Full() != nil {
		// The guest may answer a broken-off body before the transport reports
		// the break. In either order, the error is the quota's.
		if err == nil {
			resp.Body.Close()
		}
		end()
		return nil, upload.Full()
	}
	if err != nil {
		err = b.Explain(ctx, err)
		end()
		return nil, err
	}
	resp.Body = &heldReader{resp.Body, end}
	return resp, nil
}

func (b *liveSandbox) addForward(f *forward) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkRoomLocked(); err != nil {
		return err
	}
	b.forwards.Set(f, struct{}{})
	return nil
}

// Owner returns the principal that owns a live sandbox. It is for an edge whose
// caller has proved its right to that sandbox without naming a principal. The
// error is of kind NotFound if there is none.
func (e *Engine) Owner(ctx context.Context, id string) (sandbox.Principal, error) {
	if !sandbox.ValidID(id) {
		return "", request.NoSandbox(id)
	}
	if b := e.live(id); b != nil {
		return b.rec.Principal, nil // never changed
	}
	rec, err := e.store.Sandbox(ctx, id)
	if err != nil || rec.State == sandbox.Stopped {
		return "", request.NoSandbox(id)
	}
	return rec.Principal, nil
}

// OwnerID returns the identifier of this process in the records of its
// sandboxes.
func (e *Engine) OwnerID() string { return e.owner.ID() }

// Live returns the identifiers of all sandboxes that have not stopped, of every
// principal and process. An edge uses it to forget what it kept of the others.
func (e *Engine) Live(ctx context.Context) ([]string, error) {
	return e.store.LiveIDs(ctx)
}

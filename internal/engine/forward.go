package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
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
// A program that the request starts gets the environment of the sandbox, which
// its own variables override. It starts in dir if it names no directory. Its
// timeout is at most the longest timeout of a run. The error is of kind
// Exhausted if the sandbox has too many runs and requests, and of kind Conflict
// if the sandbox has stopped. Forward wakes a hibernated sandbox.
func (e *Engine) Forward(p sandbox.Principal, id, dir string, req *http.Request) (*http.Response, error) {
	const op = "forward request"
	b, err := e.usable(req.Context(), p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	resp, err := b.forward(req, dir)
	return resp, sandbox.Wrap(err, op, "")
}

func (b *liveSandbox) forward(req *http.Request, dir string) (*http.Response, error) {
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
		delete(b.forwards, f)
		b.mu.Unlock()
		if req.Method != http.MethodGet {
			b.copy.Soon()
		}
		release()
		close(f.done)
	})
	if err := b.adapt(req, dir); err != nil {
		end()
		return nil, err
	}
	upload, err := b.boundForward(req)
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
		err = b.explain(ctx, err)
		end()
		return nil, err
	}
	resp.Body = &heldReader{resp.Body, end}
	return resp, nil
}

// boundForward keeps a request within the quota of the box's workspace. A
// request that starts a program is treated like a run, and an upload like the
// server's own. For an upload that counts, it returns the reader, and the
// caller must call Done.
func (b *liveSandbox) boundForward(req *http.Request) (*mount.Reader, error) {
	m := b.mount
	if m == nil || req.Method != http.MethodPost {
		return nil, nil
	}
	switch req.URL.Path {
	case guestapi.ProcStart, guestapi.PathExecute:
		return nil, m.Admit(req.Context(), nil)
	case guestapi.PathFiles:
	default:
		return nil, nil
	}
	// Without a path, the form in the body names the files.
	if path := req.URL.Query().Get("path"); strings.HasPrefix(path, "/") {
		if _, ok := mount.Within(path); !ok {
			return nil, nil
		}
	}
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	if err := m.Admit(req.Context(), nil); err != nil {
		return nil, err
	}
	size := req.ContentLength
	if size <= 0 || req.Header.Get("Content-Encoding") != "" {
		size = -1
	}
	q, err := m.Bounded(req.Context(), req.Body, size, false)
	if err != nil {
		return nil, err
	}
	req.Body = readCloser{q, req.Body}
	return q, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

func (b *liveSandbox) addForward(f *forward) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkRoomLocked(); err != nil {
		return err
	}
	b.forwards[f] = struct{}{}
	return nil
}

// adapt applies the rules for runs to a request that starts a program.
func (b *liveSandbox) adapt(req *http.Request, dir string) error {
	if req.Method != http.MethodPost {
		return nil
	}
	switch req.URL.Path {
	case guestapi.ProcStart:
		return b.adaptStart(req, dir)
	case guestapi.PathExecute:
		return adaptJSON(req, func(in *guestapi.ExecuteRequest) error {
			in.EnvVars = b.environ(in.EnvVars)
			if in.ContextID == "" && in.Cwd == "" {
				in.Cwd = dir // of the default context, if this creates it
			}
			limit, err := b.runTime(time.Duration(in.TimeoutMillis) * time.Millisecond)
			in.TimeoutMillis = limit.Milliseconds()
			return err
		})
	case guestapi.PathContexts:
		return adaptJSON(req, func(in *contextRequest) error {
			in.Env = b.environ(in.Env)
			maps.Copy(in.Env, in.EnvVars)
			in.EnvVars = nil
			if in.Cwd == "" {
				in.Cwd = dir
			}
			return nil
		})
	}
	return nil
}

// A contextRequest also accepts its environment under E2B's name.
type contextRequest struct {
	guestapi.ContextRequest
	EnvVars map[string]string `json:"env_vars,omitempty"`
}

// environ returns the sandbox's environment, overridden by env.
func (b *liveSandbox) environ(env map[string]string) map[string]string {
	all := make(map[string]string, len(b.env)+len(env))
	maps.Copy(all, b.env)
	maps.Copy(all, env)
	return all
}

// runTime returns the timeout of a program that asks for d; zero asks for the
// longest one.
func (b *liveSandbox) runTime(d time.Duration) (time.Duration, error) {
	if d <= 0 {
		return b.e.opts.MaxRunTimeout, nil
	}
	return d, b.e.rules.CheckTimeout(d)
}

// clientFirst is how much later than the client's own deadline its program is
// killed. A client that sees the killed program first would take it for a
// normal end, not for a timeout.
const clientFirst = time.Second

func (b *liveSandbox) adaptStart(req *http.Request, dir string) error {
	flags, msg, err := guestapi.ReadEnvelope(req.Body, nil, guestapi.MaxUnaryRequest)
	if err != nil || flags != 0 {
		return request.Invalid("request: is not one message of Connect's protocol")
	}
	var in guestapi.StartRequest
	if err := json.Unmarshal(msg, &in); err != nil {
		return request.Invalid("request: %v", err)
	}
	in.Process.Envs = b.environ(in.Process.Envs)
	if in.Process.Cwd == "" {
		in.Process.Cwd = dir
	}
	var asked int64
	if text := req.Header.Get(guestapi.HeaderTimeout); text != "" {
		// Connect allows ten digits.
		if asked, err = strconv.ParseInt(text, 10, 64); err != nil || asked < 0 || asked > 9_999_999_999 {
			return request.Invalid("timeout: %s is not a number of milliseconds", excerpt.Quote(text))
		}
	}
	limit, err := b.runTime(time.Duration(asked) * time.Millisecond)
	if err != nil {
		return err
	}
	if asked > 0 {
		limit += clientFirst
	}
	req.Header = req.Header.Clone()
	req.Header.Set(guestapi.HeaderTimeout, strconv.FormatInt(limit.Milliseconds(), 10))
	if msg, err = json.Marshal(&in); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	setBody(req, guestapi.AppendEnvelope(nil, 0, msg))
	return nil
}

// adaptJSON changes a request with a JSON body.
func adaptJSON[T any](req *http.Request, change func(*T) error) error {
	body, err := io.ReadAll(io.LimitReader(req.Body, guestapi.MaxUnaryRequest+1))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read request: %w", err)
	}
	if len(body) > guestapi.MaxUnaryRequest {
		return request.Invalid("request: is longer than %d bytes", guestapi.MaxUnaryRequest)
	}
	in := new(T)
	if len(body) > 0 {
		if err := json.Unmarshal(body, in); err != nil {
			return request.Invalid("request: %v", err)
		}
	}
	if err := change(in); err != nil {
		return err
	}
	if body, err = json.Marshal(in); err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	req.Header = req.Header.Clone()
	req.Header.Set("Content-Type", guestapi.ContentTypeUnary)
	setBody(req, body)
	return nil
}

func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
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
// principal. An edge uses it to find the sandbox for which its caller has a
// proof.
func (e *Engine) Live(ctx context.Context) ([]string, error) {
	recs, err := e.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, sandbox.Wrap(err, "list sandboxes", "")
	}
	ids := make([]string, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return ids, nil
}

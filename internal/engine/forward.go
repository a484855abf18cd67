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

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A forward is a request that went to a guest as it came, until its answer's
// body is closed, or a connection to a port.
type forward struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Forward sends a request of the guest's protocol, which package guestapi
// describes, to a sandbox, and returns the guest's answer as it came: it is
// untrusted, and not bounded. The caller closes the answer's body; until then
// the sandbox is in use. Of the request, method, path, query, headers and body
// count, and its context bounds the exchange.
//
// Programs that it starts are started as runs are: with the sandbox's
// environment below their own, in dir if they name no directory, and for no
// longer than any run may take. It fails with Exhausted if as much goes on in
// the sandbox as may, and with Conflict if the sandbox has stopped. It wakes
// one that hibernates.
func (e *Engine) Forward(p sandbox.Principal, id, dir string, req *http.Request) (*http.Response, error) {
	const op = "forward request"
	b, err := e.usable(req.Context(), p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	resp, err := b.forward(req, dir)
	return resp, sandbox.Wrap(err, op, "")
}

func (b *box) forward(req *http.Request, dir string) (*http.Response, error) {
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
			b.copy.soon()
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
		counted = upload.done
	}
	resp, err := b.guest.RoundTrip(req)
	if upload != nil && upload.full() != nil {
		// The guest may answer a body that breaks off before the transport
		// says that it did: the quota decides, whichever comes first.
		if err == nil {
			resp.Body.Close()
		}
		end()
		return nil, upload.full()
	}
	if err != nil {
		err = b.explain(ctx, err)
		end()
		return nil, err
	}
	resp.Body = &heldReader{resp.Body, end}
	return resp, nil
}

// boundForward keeps a request within the quota of the box's workspace: one that
// starts a program as a run is kept, and an upload as the server's own are. It
// returns the reader of an upload that counts, whose end the caller tells.
func (b *box) boundForward(req *http.Request) (*quotaReader, error) {
	m := b.mount
	if m == nil || req.Method != http.MethodPost {
		return nil, nil
	}
	switch req.URL.Path {
	case guestapi.ProcStart, guestapi.PathExecute:
		return nil, m.admit(req.Context(), nil)
	case guestapi.PathFiles:
	default:
		return nil, nil
	}
	// Without a path, the form in the body says where its files go.
	if path := req.URL.Query().Get("path"); strings.HasPrefix(path, "/") {
		if _, ok := inWorkspace(path); !ok {
			return nil, nil
		}
	}
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	if err := m.admit(req.Context(), nil); err != nil {
		return nil, err
	}
	size := req.ContentLength
	if size <= 0 || req.Header.Get("Content-Encoding") != "" {
		size = -1
	}
	q, err := m.bounded(req.Context(), req.Body, size, false)
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

func (b *box) addForward(f *forward) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkRoom(); err != nil {
		return err
	}
	b.forwards[f] = struct{}{}
	return nil
}

// adapt changes a request that starts a program as the rules of runs ask for.
func (b *box) adapt(req *http.Request, dir string) error {
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
				in.Cwd = dir // of the default context, if this makes it
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

// A contextRequest may have its environment under E2B's name, too.
type contextRequest struct {
	guestapi.ContextRequest
	EnvVars map[string]string `json:"env_vars,omitempty"`
}

// environ returns the environment of a program that has env as its own.
func (b *box) environ(env map[string]string) map[string]string {
	all := make(map[string]string, len(b.env)+len(env))
	maps.Copy(all, b.env)
	maps.Copy(all, env)
	return all
}

// runTime returns how long a program may run that asks for d; 0 is for as long
// as it may.
func (b *box) runTime(d time.Duration) (time.Duration, error) {
	if d <= 0 {
		return b.e.opts.MaxRunTimeout, nil
	}
	return d, b.e.checkTimeout(d)
}

// clientFirst is how much later than a client's own deadline its program is
// killed: a client that hears of a killed program before it looks at its clock
// takes that for the program's end, not for a timeout.
const clientFirst = time.Second

func (b *box) adaptStart(req *http.Request, dir string) error {
	flags, msg, err := guestapi.ReadEnvelope(req.Body, nil, guestapi.MaxUnaryRequest)
	if err != nil || flags != 0 {
		return invalid("request: is not one message of Connect's protocol")
	}
	var in guestapi.StartRequest
	if err := json.Unmarshal(msg, &in); err != nil {
		return invalid("request: %v", err)
	}
	in.Process.Envs = b.environ(in.Process.Envs)
	if in.Process.Cwd == "" {
		in.Process.Cwd = dir
	}
	var asked int64
	if text := req.Header.Get(guestapi.HeaderTimeout); text != "" {
		// Connect allows ten digits.
		if asked, err = strconv.ParseInt(text, 10, 64); err != nil || asked < 0 || asked > 9_999_999_999 {
			return invalid("timeout: %s is not a number of milliseconds", shorten(text))
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

// adaptJSON changes a request whose body is JSON.
func adaptJSON[T any](req *http.Request, change func(*T) error) error {
	body, err := io.ReadAll(io.LimitReader(req.Body, guestapi.MaxUnaryRequest+1))
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read request: %w", err)
	}
	if len(body) > guestapi.MaxUnaryRequest {
		return invalid("request: is longer than %d bytes", guestapi.MaxUnaryRequest)
	}
	in := new(T)
	if len(body) > 0 {
		if err := json.Unmarshal(body, in); err != nil {
			return invalid("request: %v", err)
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

// Owner returns whose a live sandbox is, for an edge whose caller has proved
// its right to that sandbox by other means than who it is. It fails with
// NotFound if there is none.
func (e *Engine) Owner(ctx context.Context, id string) (sandbox.Principal, error) {
	if !sandbox.ValidID(id) {
		return "", noSandbox(id)
	}
	if b := e.box(id); b != nil {
		return b.rec.Principal, nil // never changed
	}
	rec, err := e.store.Sandbox(ctx, id)
	if err != nil || rec.State == sandbox.Stopped {
		return "", noSandbox(id)
	}
	return rec.Principal, nil
}

// OwnerID returns this process's name in the records of its sandboxes.
func (e *Engine) OwnerID() string { return e.owner.ID() }

// Live returns the identifiers of all sandboxes that have not stopped, whosoever
// they are. It is for an edge that looks for the one of which it has proof.
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

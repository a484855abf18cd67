package dashboard

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

const (
	secret = sandbox.Principal("token:somebody-else")
	alice  = sandbox.Principal("token:alice")
	box    = "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	theRun = "run_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	script = `<script>alert(1)</script>`
	named  = `<script>alert(1)` // a name of a file
)

// png is a picture of one pixel, by its first bytes.
var png = []byte("\x89PNG\r\n\x1a\n and so on")

// engine has one sandbox of alice, with one run.
type engine struct {
	mu       sync.Mutex
	box      sandbox.Sandbox
	run      sandbox.ListedRun
	out      map[sandbox.StreamName][]byte
	results  sandbox.Results
	stopped  []string
	shell    chan string // input of the terminal
	waits    int
	measured atomic.Int64      // calls of Loads
	files    map[string]string // by path
	begun    []sandbox.RunRequest
	kept     []sandbox.Snapshot
	refusal  error    // of each action on snapshots
	actions  []string // on snapshots
	forks    []sandbox.Fork
	many     int // sandboxes in the list
}

func newEngine() *engine {
	began := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	code := 3
	return &engine{
		shell: make(chan string, 10),
		kept: []sandbox.Snapshot{{
			ID: theSnapshot, Name: "s" + script, State: sandbox.SnapshotKept, Sandbox: box, Parent: "snap_bbbbbbbbbbbbbbbbbbbbbbbbbb",
			Bytes: 3 << 20, Created: began, Expires: began.Add(time.Hour),
		}},
		box: sandbox.Sandbox{
			ID: box, Name: "n" + script, State: sandbox.Running, Image: "i" + script, Network: "example.com", Created: began, Expires: began.Add(time.Hour),
			Limits: sandbox.DefaultLimits(), Receipt: sandbox.Receipt{{Name: sandbox.ControlMemory, Value: "512 MiB" + script, Enforced: true}},
		},
		run: sandbox.ListedRun{Language: "python", Program: "print('" + script + "')\nfail()", Run: sandbox.Run{
			ID: theRun, SandboxID: box, Status: sandbox.RunFinished, ExitCode: &code, Started: began, Ended: began.Add(time.Second),
			Verdict: sandbox.Verdict{Code: sandbox.Failed, Cause: "why" + script, NextStep: "next" + script},
			Changes: &sandbox.Changes{Files: []sandbox.FileChange{{Path: script, Change: sandbox.FileCreated}}},
			Network: &sandbox.RunNetwork{Blocked: []sandbox.Destination{{Host: script, Blocked: sandbox.BlockedPolicy}}},
		}},
		out: map[sandbox.StreamName][]byte{
			sandbox.Stdout: []byte("\x1b[31mred" + script + "\x1b[0m\xff\n"), sandbox.Stderr: []byte(script),
		},
		files: map[string]string{"/data/" + named: script, "/data/a.png": string(png), "/data/binary": "a\x00b", "/data/dir": "", "/data/empty": ""},
		results: sandbox.Results{
			Results: []sandbox.Result{
				{Data: map[string]json.RawMessage{"image/png": quoted(base64.StdEncoding.EncodeToString(png)), "text/plain": quoted("a figure")}},
				{Data: map[string]json.RawMessage{"text/html": quoted(script)}},
				{Data: map[string]json.RawMessage{"image/svg+xml": quoted("<svg>" + script)}},
				{Data: map[string]json.RawMessage{"image/png": quoted(base64.StdEncoding.EncodeToString([]byte(script)))}},
			},
			Error: &sandbox.RunError{Name: script, Value: script, Line: 2, Source: script},
			Files: map[string]sandbox.Preview{
				script + ".png": {MIME: "image/png", Data: sandbox.ToBase64(png)},
				"fake.png":      {MIME: "image/png", Data: sandbox.ToBase64([]byte(script))},
			},
		},
	}
}

func quoted(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return b
}

var errMissing = sandbox.Errorf(sandbox.NotFound, "there is nothing of that name")

func (e *engine) own(p sandbox.Principal, id string) error {
	if p != alice || id != box && id != theRun {
		return errMissing
	}
	return nil
}

func (e *engine) Get(_ context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.box, e.own(p, id)
}

func (e *engine) List(_ context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p != alice {
		return nil, nil
	}
	list := []sandbox.Sandbox{e.box}
	for i := 1; i < e.many; i++ {
		other := e.box
		other.ID = fmt.Sprintf("sbx_%026d", i)
		list = append(list, other)
	}
	return list, nil
}

func (e *engine) Loads(_ context.Context, p sandbox.Principal) map[string]sandbox.Load {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.measured.Add(1)
	if p != alice {
		return nil
	}
	return map[string]sandbox.Load{box: {CPU: time.Duration(e.measured.Load()) * 1500 * time.Millisecond, MemoryBytes: 64 << 20}}
}

func (e *engine) Stop(_ context.Context, p sandbox.Principal, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.own(p, id); err != nil {
		return err
	}
	e.stopped = append(e.stopped, id)
	e.box.State = sandbox.Stopped
	return nil
}

func (e *engine) Hibernate(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, sandbox.Hibernated)
}

func (e *engine) Wake(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, sandbox.Running)
}

func (e *engine) SendInput(_ context.Context, p sandbox.Principal, id string, data []byte, _ bool) error {
	if err := e.own(p, id); err != nil {
		return err
	}
	e.shell <- string(data)
	return nil
}

func (e *engine) Resize(_ context.Context, p sandbox.Principal, id string, size sandbox.TerminalSize) error {
	if err := e.own(p, id); err != nil {
		return err
	}
	e.shell <- fmt.Sprint(size.Cols, "x", size.Rows)
	return nil
}

// Follow gives back each input and size, until the input exit.
func (e *engine) Follow(ctx context.Context, p sandbox.Principal, id string, f func(sandbox.StreamName, []byte) error) error {
	if err := e.own(p, id); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case text := <-e.shell:
			if text == "exit" {
				return nil
			}
			if err := f(sandbox.Stdout, []byte("got "+text)); err != nil {
				return err
			}
		}
	}
}

func (e *engine) set(p sandbox.Principal, id string, to sandbox.State) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.own(p, id); err != nil {
		return err
	}
	e.box.State = to
	return nil
}

func (e *engine) StopRun(_ context.Context, p sandbox.Principal, id string) (sandbox.Run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.own(p, id); err != nil {
		return sandbox.Run{}, err
	}
	e.stopped = append(e.stopped, id)
	return e.run.Run, nil
}

func (e *engine) Runs(_ context.Context, p sandbox.Principal, id string, _ int) ([]sandbox.Run, error) {
	return []sandbox.Run{e.run.Run}, e.own(p, id)
}

func (e *engine) LastRuns(_ context.Context, p sandbox.Principal, _ int) ([]sandbox.ListedRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p != alice {
		return nil, nil
	}
	return []sandbox.ListedRun{e.run}, nil
}

// Wait ends the run at its third call.
func (e *engine) Wait(ctx context.Context, p sandbox.Principal, id string) (sandbox.Run, error) {
	if err := e.own(p, id); err != nil {
		return sandbox.Run{}, err
	}
	e.mu.Lock()
	e.waits++
	if e.waits >= 3 {
		e.run.Status = sandbox.RunFinished
	}
	run := e.run.Run
	e.mu.Unlock()
	if run.Status == sandbox.RunFinished {
		return run, nil
	}
	<-ctx.Done()
	return run, ctx.Err()
}

func (e *engine) ReadOutput(_ context.Context, p sandbox.Principal, id string, stream sandbox.StreamName, offset, limit int64) ([]byte, int64, error) {
	if err := e.own(p, id); err != nil {
		return nil, 0, err
	}
	data := e.out[stream]
	end := min(offset+limit, int64(len(data)))
	return data[min(offset, end):end], int64(len(data)), nil
}

func (e *engine) Results(_ context.Context, p sandbox.Principal, id string) (sandbox.Results, error) {
	return e.results, e.own(p, id)
}

func (e *engine) Connections(_ context.Context, p sandbox.Principal, id string, _ int) ([]sandbox.Connection, error) {
	return []sandbox.Connection{{Number: 1, Host: script, Port: 443, Protocol: sandbox.ProtocolTCP, Blocked: sandbox.BlockedPolicy}}, e.own(p, id)
}

func (e *engine) Start(_ context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error) {
	if p != alice {
		return sandbox.Run{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "no %s here: %s", r.Language, script), "take another: %s", script)
	}
	e.begun = append(e.begun, r)
	return e.run.Run, nil
}

func (e *engine) Workspaces(_ context.Context, p sandbox.Principal) ([]sandbox.Workspace, error) {
	if p != alice {
		return nil, nil
	}
	return []sandbox.Workspace{{Name: "w" + script, InUse: true}}, nil
}

func (e *engine) ListFiles(_ context.Context, p sandbox.Principal, id, dir string, _ int) ([]sandbox.File, bool, error) {
	var list []sandbox.File
	for name := range e.files {
		f := sandbox.File{Path: name, Type: sandbox.TypeFile, Owner: "user"}
		if name == "/data/dir" {
			f.Type = sandbox.TypeDirectory
		}
		if path.Dir(name) == dir {
			list = append(list, f)
		}
	}
	return list, true, e.own(p, id)
}

func (e *engine) StatFile(_ context.Context, p sandbox.Principal, id, name string) (sandbox.File, error) {
	f := sandbox.File{Path: name, Type: sandbox.TypeFile}
	if name == "/data/dir" {
		f.Type = sandbox.TypeDirectory
	}
	if _, ok := e.files[name]; !ok {
		return f, errMissing
	}
	return f, e.own(p, id)
}

func (e *engine) ReadFile(_ context.Context, p sandbox.Principal, id, name string, _, length int64) (io.ReadCloser, int64, error) {
	text, ok := e.files[name]
	if err := e.own(p, id); err != nil || !ok {
		return nil, 0, errMissing
	}
	if length < 0 {
		length = int64(len(text))
	}
	return io.NopCloser(strings.NewReader(text[:min(length, int64(len(text)))])), int64(len(text)), nil
}

func (e *engine) WriteFile(_ context.Context, p sandbox.Principal, id, name string, r io.Reader, _ bool) error {
	if err := e.own(p, id); err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	e.files[name] = string(b)
	return err
}

// theSnapshot is of the sandbox, and has a name with markup.
const theSnapshot = "snap_aaaaaaaaaaaaaaaaaaaaaaaaaa"

// act notes an action on the sandbox's state.
func (e *engine) act(p sandbox.Principal, id, text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.own(p, id); err != nil {
		return err
	}
	if e.refusal == nil {
		e.actions = append(e.actions, text)
	}
	return e.refusal
}

func (e *engine) TakeSnapshot(_ context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{ID: theSnapshot}, e.act(p, id, "take "+name)
}

func (e *engine) Snapshots(_ context.Context, p sandbox.Principal, f sandbox.SnapshotFilter) ([]sandbox.Snapshot, error) {
	return e.kept, e.own(p, f.Sandbox)
}

func (e *engine) RemoveSnapshot(_ context.Context, p sandbox.Principal, ref string) error {
	return e.act(p, box, "delete "+ref)
}

func (e *engine) Rollback(_ context.Context, p sandbox.Principal, id, ref string, endRuns bool) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, e.act(p, id, fmt.Sprint("rollback ", ref, " ", endRuns))
}

func (e *engine) Fork(_ context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	return e.forks, e.act(p, id, fmt.Sprint("fork ", req.Count, " ", req.CopyWorkspace))
}

// accounts has usage of alice, who is in a group, and of somebody else.
type accounts struct{}

func (accounts) Usage(_ context.Context, q usage.Query) ([]usage.Row, error) {
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	all := []usage.Row{
		{Start: day, Principal: alice, Amounts: usage.Amounts{CPUMillis: 1500, Runs: 3, SentBytes: 1 << 20}},
		{Start: day, Principal: secret, Amounts: usage.Amounts{CPUMillis: 60_000, Runs: 40}},
	}
	if len(q.Principals) > 0 {
		all = slices.DeleteFunc(all, func(r usage.Row) bool { return !slices.Contains(q.Principals, r.Principal) })
	}
	for i := range all {
		if !q.Has(usage.ByPrincipal) {
			all[i].Principal = ""
		}
		if !q.Has(usage.ByDay) {
			all[i].Start = time.Time{}
		}
	}
	return all, nil
}

func (accounts) Accounts(_ context.Context, p sandbox.Principal) ([]usage.Account, error) {
	if p != alice {
		return nil, nil
	}
	return []usage.Account{{Group: "g" + script, Limits: map[usage.Limit]int64{usage.LimitCPUDay: 3600_000}, Day: usage.Amounts{CPUMillis: 1800_000}}}, nil
}

func (accounts) Members(context.Context) (map[string][]sandbox.Principal, error) {
	return map[string][]sandbox.Principal{"g" + script: {alice}}, nil
}

// auditLog has two records, one of which somebody else caused.
type auditLog struct{ wrong error }

func (a *auditLog) Last(_ context.Context, _ int, match func(audit.Record) bool) ([]audit.Record, error) {
	var list []audit.Record
	for _, r := range []audit.Record{
		{Seq: 2, Action: audit.RunStart, Principal: alice, Sandbox: box, Run: theRun, Outcome: audit.OK, Detail: map[string]string{"language": script}},
		{Seq: 1, Action: audit.NetworkRefuse, Principal: secret, Outcome: "forbidden", Detail: map[string]string{"host": "refused.test"}},
	} {
		if match(r) {
			list = append(list, r)
		}
	}
	return list, a.wrong
}

func (a *auditLog) Verify(context.Context) (audit.Report, error) {
	return audit.Report{Records: 12345, First: 1, Files: 1}, a.wrong
}

// verifier accepts the names of principals as tokens. A token that begins with "files"
// has that scope only.
type verifier struct {
	mu      sync.Mutex
	revoked sandbox.Principal
	expires time.Time
	down    error // of the issuer
}

func (v *verifier) Verify(_ context.Context, token string) (auth.Identity, error) {
	id := auth.Identity{Principal: sandbox.TokenPrincipal(token), Scopes: []auth.Scope{auth.ScopeFiles, auth.ScopeRun}, Token: token, Expires: v.expires}
	switch {
	case strings.HasPrefix(token, "files"):
		id.Scopes = []auth.Scope{auth.ScopeFiles}
	case token == "operator":
		id.Scopes = []auth.Scope{auth.ScopeAdmin}
	case token == "reader":
		id.Principal, id.Scopes = alice, []auth.Scope{auth.ScopeRead}
	case token == "runonly":
		id.Principal, id.Scopes = alice, []auth.Scope{auth.ScopeRun}
	case token != "alice" && token != "bob":
		return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: not valid")
	}
	return id, nil
}

// BeginSignIn sends people to issuer.test with the state "state".
func (v *verifier) BeginSignIn(context.Context) (auth.SignIn, error) {
	return auth.SignIn{URL: "https://issuer.test/in", State: "state"}, v.down
}

// FinishSignIn takes codes for tokens.
func (v *verifier) FinishSignIn(ctx context.Context, _ auth.SignIn, code string) (auth.Identity, error) {
	return v.Verify(ctx, code)
}

func (v *verifier) List(context.Context) ([]sandbox.Token, error) {
	return []sandbox.Token{
		{ID: "tok_of_alice", Name: "t" + script, Principal: alice, Scopes: []string{"run"}, Created: time.Unix(1, 0)},
		{ID: "tok_of_other", Name: "somebody-else", Principal: secret, Scopes: []string{"admin"}, Created: time.Unix(2, 0), Revoked: time.Unix(3, 0)},
	}, nil
}

// ports makes links on another host name.
type ports struct{}

func (ports) PortURL(_ context.Context, p sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	switch {
	case p != alice || id != box:
		return "", time.Time{}, errMissing
	case port < 1 || port > 65535:
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "port: out of range")
	}
	return fmt.Sprintf("https://%d-%s.ports.example.com:8443/?glovebox_link=LINK", port, sandbox.HostID(id)), time.Unix(1800000000, 0).Add(good), nil
}

func (v *verifier) Gone(_ context.Context, id auth.Identity) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return id.Principal == v.revoked, nil
}

func (v *verifier) revoke(p sandbox.Principal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.revoked = p
}

// A world is a dashboard with a browser.
type world struct {
	*testing.T
	engine   *engine
	verifier *verifier
	server   *Server
	now      time.Time
	cookies  map[string]string
	remote   string
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{
		T: t, engine: newEngine(), verifier: &verifier{}, cookies: map[string]string{}, remote: "192.0.2.1:1234",
		now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC),
	}
	o := Options{Engine: w.engine, Auth: w.verifier, Log: slog.New(slog.DiscardHandler), Version: "v0", Languages: []string{"python", "bash"}, Accounts: accounts{}, Audit: &auditLog{}, Ports: ports{}, TokenForm: true, Now: func() time.Time { return w.now }}
	if change != nil {
		change(&o)
	}
	w.server = New(o)
	return w
}

// request returns a request of the browser, from a page of the dashboard. Headers are
// name, value pairs, which replace the browser's own.
func (w *world) request(method, path string, form url.Values, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(form.Encode()))
	r.Host, r.RemoteAddr = "box.example.com", w.remote
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range w.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// arrive begins the session of a person who is signed in, and wants that page to be next.
func (w *world) arrive(next string) {
	w.Helper()
	if res, body := w.get(arrivedPath); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != next {
		w.Fatalf("arrived: %d to %s\n%s", res.StatusCode, res.Header.Get("Location"), body)
	}
}

// do sends a request, and keeps the cookies of the answer.
func (w *world) do(r *http.Request) (*http.Response, string) {
	w.Helper()
	rec := httptest.NewRecorder()
	w.server.Authenticate(w.server).ServeHTTP(rec, r)
	res := rec.Result()
	for _, c := range res.Cookies() {
		w.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(w.cookies, c.Name)
		}
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, res.Body); err != nil {
		w.Fatal(err)
	}
	return res, b.String()
}

func (w *world) get(page string, headers ...string) (*http.Response, string) {
	w.Helper()
	return w.do(w.request(http.MethodGet, page, nil, headers...))
}

func (w *world) post(path string, form url.Values, headers ...string) (*http.Response, string) {
	w.Helper()
	return w.do(w.request(http.MethodPost, path, form, headers...))
}

func (w *world) signIn(token string) {
	w.Helper()
	if res, body := w.post(signInPath, url.Values{"token": {token}}); res.StatusCode != http.StatusSeeOther {
		w.Fatalf("sign in: %d %s", res.StatusCode, body)
	}
}

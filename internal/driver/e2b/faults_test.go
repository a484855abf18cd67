package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/plane"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A cloud is as much of E2B's as can go wrong, with an agent that knows nothing
// of ours.
type cloud struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	boxes map[string]*plane.Sandbox
	files map[string]string
	snaps keptSnapshots
	token string
	calls []string
	// fault, if it is not nil, may answer a request instead; it returns true
	// if it did.
	fault func(w http.ResponseWriter, r *http.Request) bool
	waits []time.Duration
}

const testKey = "e2b_00"

func newCloud(t *testing.T) (*cloud, *Driver) {
	t.Helper()
	c := &cloud{t: t, boxes: map[string]*plane.Sandbox{}, files: map[string]string{}, token: "first"}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	c.url = srv.URL
	d, err := New(Options{StateDir: t.TempDir(), Key: testKey, APIURL: srv.URL, SandboxURL: srv.URL + "/box", Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	d.control.Wait = func(ctx context.Context, d time.Duration) error {
		c.mu.Lock()
		c.waits = append(c.waits, d)
		c.mu.Unlock()
		return ctx.Err()
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, d
}

func (c *cloud) set(fault func(http.ResponseWriter, *http.Request) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.calls, c.waits = fault, nil, nil
}

func (c *cloud) made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.boxes))
}

func (c *cloud) asked(call string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, got := range c.calls {
		if strings.HasPrefix(got, call) {
			n++
		}
	}
	return n
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.calls = append(c.calls, r.Method+" "+r.URL.Path)
	fault := c.fault
	c.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if path, ok := strings.CutPrefix(r.URL.Path, "/box"); ok {
		c.agent(w, r, path)
		return
	}
	if r.Header.Get("X-API-KEY") != testKey {
		http.Error(w, `{"code":401,"message":"Invalid API key"}`, http.StatusUnauthorized)
		return
	}
	if c.snaps.serve(c, w, r) {
		return
	}
	id := strings.Split(strings.TrimPrefix(r.URL.Path, "/sandboxes/"), "/")[0]
	answer := func(v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			c.t.Error(err)
		}
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v2/sandboxes":
		var in struct {
			TemplateID string
			Metadata   map[string]string
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			c.t.Error(err)
		}
		if strings.Contains(in.TemplateID, "/") && !c.snaps.has(in.TemplateID) {
			http.Error(w, `{"code":404,"message":"template not found"}`, http.StatusNotFound)
			return
		}
		no := false
		s := &plane.Sandbox{
			SandboxID: fmt.Sprintf("i%019d", len(c.boxes)), EnvdVersion: "0.6.0", EnvdAccessToken: c.token, Metadata: in.Metadata,
			CPUCount: 1, MemoryMB: 512, DiskSizeMB: 1024, AllowInternetAccess: &no,
		}
		c.boxes[s.SandboxID] = s
		w.WriteHeader(http.StatusCreated)
		answer(s)
	case r.URL.Path == "/v2/sandboxes":
		want, err := url.ParseQuery(r.URL.Query().Get("metadata"))
		if err != nil {
			c.t.Error(err)
		}
		list := []*plane.Sandbox{}
		for _, s := range c.boxes {
			matches := true
			for name := range want {
				matches = matches && s.Metadata[name] == want.Get(name)
			}
			if matches {
				list = append(list, s)
			}
		}
		answer(list)
	case c.boxes[id] == nil:
		http.Error(w, `{"code":404,"message":"sandbox not found"}`, http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(c.boxes, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		s := *c.boxes[id]
		s.EnvdAccessToken = c.token
		answer(&s)
	default: // timeout
		w.WriteHeader(http.StatusNoContent)
	}
}

// agent serves the data plane. It replaces files, whatever else is asked for.
func (c *cloud) agent(w http.ResponseWriter, r *http.Request, path string) {
	if r.Header.Get("X-API-KEY") != "" {
		c.t.Error("the API key went to a sandbox")
	}
	switch {
	case c.boxes[r.Header.Get("E2b-Sandbox-Id")] == nil:
		http.Error(w, `{"code":502,"message":"The sandbox was not found"}`, http.StatusBadGateway)
	case r.Header.Get("X-Access-Token") != c.token:
		http.Error(w, `{"code":401,"message":"unauthorized"}`, http.StatusUnauthorized)
	case path == guestapi.PathHealth:
		w.WriteHeader(http.StatusNoContent)
	case path == guestapi.PathFiles && r.Method == http.MethodGet:
		text, ok := c.files[r.URL.Query().Get("path")]
		if !ok {
			http.Error(w, `{"code":404,"message":"no such file"}`, http.StatusNotFound)
			return
		}
		io.WriteString(w, text)
	case path == guestapi.PathFiles:
		name := r.URL.Query().Get("path")
		c.files[name] = "" // as E2B's does, and not whole
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		c.files[name] = string(b)
		json.NewEncoder(w).Encode([]guestapi.WriteInfo{{Name: name, Path: name}})
	case path == guestapi.FSStat:
		json.NewEncoder(w).Encode(guestapi.EntryResponse{Entry: guestapi.Entry{Name: "x"}})
	default:
		http.Error(w, `{"code":"unimplemented"}`, http.StatusNotImplemented)
	}
}

func testSpec() *driver.Spec {
	return &driver.Spec{
		ID: sandbox.NewID(), Image: "base", Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlProcesses},
	}
}

func mustCreate(t *testing.T, d *Driver) driver.Box {
	t.Helper()
	b, err := d.Create(t.Context(), testSpec())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func status(code int, message string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/v2/sandboxes" {
			return false
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"code":%d,"message":%q}`, code, message)
		return true
	}
}

// TestRefusals: each refusal of E2B's has a kind and a hint that fit, and is
// tried again only where that may help.
func TestRefusals(t *testing.T) {
	c, d := newCloud(t)
	for _, tt := range []struct {
		code    int
		message string
		kind    sandbox.Kind
		hint    string
		tries   int
	}{
		{401, "Invalid API key", sandbox.Unavailable, "E2B_API_KEY", 1},
		{403, "forbidden", sandbox.Unavailable, "E2B_API_KEY", 1},
		{404, "template 'x' not found", sandbox.NotFound, "template", 1},
		{400, "invalid template reference", sandbox.NotFound, "template", 1},
		{400, "timeout too long", sandbox.Invalid, "E2B", 1},
		{429, "you have reached the maximum number of concurrent sandboxes", sandbox.Exhausted, "stop some", plane.MaxTries},
		{500, "oops", sandbox.Unavailable, "status.e2b.dev", 1},
		{503, "no capacity", sandbox.Unavailable, "status.e2b.dev", plane.MaxTries},
		{501, "no", sandbox.Unsupported, "supports this request", 1},
	} {
		c.set(status(tt.code, tt.message))
		_, err := d.Create(t.Context(), testSpec())
		if sandbox.KindOf(err) != tt.kind || !strings.Contains(sandbox.HintOf(err), tt.hint) || !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%d %s: %v (kind %s, hint %q); want kind %s, hint %q", tt.code, tt.message, err, sandbox.KindOf(err), sandbox.HintOf(err), tt.kind, tt.hint)
		}
		if n := c.asked("POST /v2/sandboxes"); n != tt.tries {
			t.Errorf("%d %s: asked %d times, want %d", tt.code, tt.message, n, tt.tries)
		}
	}
	c.set(nil)
	d.control.Key = "e2b_ff"
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(sandbox.HintOf(err), "E2B_API_KEY") {
		t.Errorf("Probe with a bad key: %v (hint %q)", err, sandbox.HintOf(err))
	}
	d.opts.Key = ""
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) || sandbox.HintOf(err) != "set E2B_API_KEY" {
		t.Errorf("Probe without a key: %v (hint %q)", err, sandbox.HintOf(err))
	}
}

// TestBackOff: what is tried again waits as long as E2B asks, or longer each
// time.
func TestBackOff(t *testing.T) {
	c, d := newCloud(t)
	n := 0
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if n++; n > 3 {
			return false
		}
		if n == 2 {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	if _, err := d.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.waits) != 3 || c.waits[0] < plane.FirstPause || c.waits[0] > 2*plane.FirstPause || c.waits[1] != 7*time.Second || c.waits[2] < 4*plane.FirstPause {
		t.Errorf("waited %v", c.waits)
	}
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		panic(http.ErrAbortHandler)
	})
	if _, err := d.List(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable || c.asked("GET") < plane.MaxTries {
		t.Errorf("a server that breaks off: %v after %d tries", err, c.asked("GET"))
	}
}

// TestLostAnswer: a sandbox of which the answer was lost, or came too late, or
// made no sense, is not left.
func TestLostAnswer(t *testing.T) {
	c, d := newCloud(t)
	late, cancel := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		ctx    context.Context
		answer func(http.ResponseWriter)
	}{
		"broken off":    {t.Context(), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"a 502":         {t.Context(), func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"nonsense":      {t.Context(), func(w http.ResponseWriter) { io.WriteString(w, "<html>") }},
		"no name":       {t.Context(), func(w http.ResponseWriter) { io.WriteString(w, `{"sandboxID":"../x"}`) }},
		"an old one":    {t.Context(), func(w http.ResponseWriter) { io.WriteString(w, `{"sandboxID":"abcdefgh","envdVersion":"0.5.6"}`) }},
		"much too late": {late, func(http.ResponseWriter) { cancel() }},
	} {
		c.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.URL.Path != "/v2/sandboxes" {
				return false
			}
			c.mu.Lock()
			fault := c.fault
			c.fault = nil
			c.mu.Unlock()
			rec := httptest.NewRecorder()
			c.ServeHTTP(rec, r) // it is made
			c.mu.Lock()
			c.fault = fault
			c.mu.Unlock()
			tt.answer(w)
			return true
		})
		b, err := d.Create(tt.ctx, testSpec())
		if err == nil {
			t.Errorf("%s: Create returns %v", name, b.Ref())
		}
		if left := c.made(); len(left) > 0 {
			t.Errorf("%s: sandboxes are left: %q (Create says %v)", name, left, err)
		}
	}
}

// TestTooMuch: a template that gives more than was asked for is refused, and
// the sandbox removed.
func TestTooMuch(t *testing.T) {
	c, d := newCloud(t)
	spec := testSpec()
	spec.Limits.MemoryBytes = 256 << 20
	_, err := d.Create(t.Context(), spec)
	if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "--allow-unenforced memory") || len(c.made()) > 0 {
		t.Errorf("%v (hint %q); left %q", err, sandbox.HintOf(err), c.made())
	}
	spec.AllowUnenforced = append(spec.AllowUnenforced, sandbox.ControlMemory)
	b, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Receipt(t.Context())
	if err != nil || r.Control(sandbox.ControlMemory).Enforced || r.Control(sandbox.ControlMemory).Value != "512 MiB" {
		t.Errorf("the receipt says %+v, %v", r.Control(sandbox.ControlMemory), err)
	}
	c.boxes[b.Ref()].AllowInternetAccess = nil
	if r, err := b.Receipt(t.Context()); err != nil || r.Control(sandbox.ControlNetwork).Enforced {
		t.Errorf("a sandbox with a network: %+v, %v", r.Control(sandbox.ControlNetwork), err)
	}
}

// TestExpiredToken: access that E2B gave up is fetched again.
func TestExpiredToken(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	if _, err := client.Stat(t.Context(), "x", guestapi.FileOptions{}); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.token = "second"
	c.mu.Unlock()
	if _, err := client.Stat(t.Context(), "x", guestapi.FileOptions{}); err != nil {
		t.Errorf("after the token expired: %v", err)
	}
}

// TestKilledOutside: a sandbox that was killed by somebody else is gone.
func TestKilledOutside(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	if err := client.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	clear(c.boxes)
	c.mu.Unlock()
	if err := client.Health(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("Health: %v (kind %s)", err, sandbox.KindOf(err))
	}
	if _, err := b.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial: %v; want ErrGone", err)
	}
	if _, err := b.Receipt(t.Context()); !driver.IsGone(err) {
		t.Errorf("Receipt: %v; want ErrGone", err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy: %v", err)
	}
}

// TestDroppedStream: a stream that E2B drops is an error of the way, not an
// end.
func TestDroppedStream(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, guestapi.ProcStart) {
			return false
		}
		w.Header().Set("Content-Type", guestapi.ContentTypeStream)
		w.Write(guestapi.AppendEnvelope(nil, 0, []byte(`{"event":{"start":{"pid":7}}}`)))
		w.Write(guestapi.AppendDataEnvelope(nil, guestapi.Stdout, []byte("part")))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	p, err := client.Start(t.Context(), &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "x"}}, guestapi.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ev, err := p.Next()
	if err != nil || string(ev.Data.Stdout) != "part" {
		t.Fatalf("%+v, %v", ev, err)
	}
	if ev, err := p.Next(); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("after the stream was dropped: %+v, %v", ev, err)
	}
}

// TestSlow: who does not want to wait does not, and nothing is left.
func TestSlow(t *testing.T) {
	c, d := newCloud(t)
	release := make(chan struct{})
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		select {
		case <-r.Context().Done():
		case <-release:
		}
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := d.Create(ctx, testSpec())
		errs <- err
	}()
	for c.asked("POST") == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("Create: %v; want the context's error", err)
	}
	close(release)
	if left := c.made(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestAppend: E2B's agent cannot add to a file, and would lose what is in it.
func TestAppend(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	for _, part := range []string{"one ", "two ", strings.Repeat("x", 1<<20)} {
		if _, err := client.Write(t.Context(), "/f", strings.NewReader(part), guestapi.WriteOptions{Append: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.files["/f"]; got != "one two "+strings.Repeat("x", 1<<20) {
		t.Errorf("the file has %d bytes, and begins %.20q", len(got), got)
	}
}

// TestForeign: what belongs to another state directory, or to nobody, is left
// alone.
func TestForeign(t *testing.T) {
	c, d := newCloud(t)
	c.boxes["foreign"] = &plane.Sandbox{SandboxID: "foreign", Metadata: map[string]string{"a": "b"}}
	b := mustCreate(t, d)
	refs, err := d.List(t.Context())
	if err != nil || !slices.Equal(refs, []string{b.Ref()}) {
		t.Errorf("List: %q, %v", refs, err)
	}
	if _, err := d.Attach(t.Context(), "foreign"); !driver.IsGone(err) {
		t.Errorf("Attach: %v; want ErrGone", err)
	}
	if err := d.Discard(t.Context(), "foreign"); err != nil || !slices.Contains(c.made(), "foreign") {
		t.Errorf("Discard: %v; left are %q", err, c.made())
	}
}

// TestRefs: a box of another Glovebox server keeps its reference when that server is
// updated, and names its sandboxes in another form.
func TestRefs(t *testing.T) {
	id := sandbox.NewID()
	for name, want := range map[string]string{id: id, sandbox.HostID(id): id, "i0123456789abcdefghij": "i0123456789abcdefghij"} {
		c, d := newCloud(t)
		b := mustCreate(t, d)
		mine := c.boxes[b.Ref()]
		c.mu.Lock()
		delete(c.boxes, b.Ref())
		mine.SandboxID = name
		c.boxes[name] = mine
		c.mu.Unlock()
		refs, err := d.List(t.Context())
		if err != nil || !slices.Equal(refs, []string{want}) {
			t.Errorf("%s is listed as %q, %v; want %s", name, refs, err, want)
		}
		if got := d.newBox(mine, time.Minute).Ref(); got != want {
			t.Errorf("the box of %s has the reference %s, want %s", name, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"0.5.7": true, "0.5.8-rc1": true, "0.6.0": true, "1.0.0": true, "0.5.6": false, "0.4.99": false, "": false, "x": false, "0.5": false} {
		if got := atLeast(version, minAgent); got != want {
			t.Errorf("version %q: %t", version, got)
		}
	}
}

// TestAppendEndless: what a file has that is added to is kept aside here, as
// far as the sandbox has room for it.
func TestAppendEndless(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	b.(*Box).spec.DiskBytes = 1 << 20
	c.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, guestapi.PathFiles) {
			return false
		}
		for range 64 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return true // it left
			}
		}
		t.Error("all of it was read")
		return true
	})
	client := guestapi.NewClient(b.Dial)
	defer client.Close()
	_, err := client.Write(t.Context(), "/data/log", strings.NewReader("more"), guestapi.WriteOptions{Append: true})
	if err == nil || !strings.Contains(err.Error(), "more than 1 MiB") {
		t.Errorf("%v", err)
	}
	// The file is removed after the answer was sent.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(d.opts.StateDir, "append-*"))
		if err == nil && len(left) == 0 {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("left: %q, %v", left, err)
		}
	}
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEndsAsRefused has the caller's context end as a refusal arrives. The error has
// both.
func TestEndsAsRefused(t *testing.T) {
	_, d := newCloud(t)
	ctx, cancel := context.WithCancel(t.Context())
	d.control.HTTP = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		cancel()
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	})}
	_, err := d.control.Get(ctx, "x")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, sandbox.Unavailable) && !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("the error is %v", err)
	}
}

package guestapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A fakeGuest answers as the test says.
type fakeGuest struct {
	*Client
	dials atomic.Int32
}

func newFakeGuest(t *testing.T, maxStreams int, handler http.HandlerFunc) *fakeGuest {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams}}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	g := &fakeGuest{}
	g.Client = NewClient(func(ctx context.Context) (net.Conn, error) {
		g.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	})
	t.Cleanup(g.Close)
	return g
}

// answer returns a handler that answers anything with a status and a body.
func answer(status int, header http.Header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func env(flags byte, msg string) string { return string(AppendEnvelope(nil, flags, []byte(msg))) }

const started = `{"event":{"start":{"pid":7}}}`

func TestErrorsOfTheGuest(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		kind   sandbox.Kind
		text   string
	}{
		"connect code":    {404, `{"code":"not_found","message":"no\nsuch"}`, sandbox.NotFound, "stat file: no such"},
		"code wins":       {404, `{"code":"unimplemented"}`, sandbox.Unsupported, "HTTP status 404"},
		"conflict":        {409, `{"code":"already_exists","message":"x"}`, sandbox.Conflict, "x"},
		"unknown code":    {500, `{"code":"odd","message":"x"}`, sandbox.Internal, "x"},
		"of files":        {404, `{"code":404,"message":"gone"}`, sandbox.NotFound, "gone"},
		"full disk":       {507, `{"code":507,"message":"full"}`, sandbox.Exhausted, "full"},
		"no JSON":         {502, `<html>`, sandbox.Unavailable, "HTTP status 502"},
		"control bytes":   {400, `{"code":"invalid_argument","message":"a\u001b[31mb"}`, sandbox.Invalid, "a[31mb"},
		"huge error":      {400, `{"message":"` + strings.Repeat("x", 1<<20) + `"}`, sandbox.Unavailable, "exceeds"},
		"long message":    {400, `{"code":"invalid_argument","message":"` + strings.Repeat("x", 9000) + `"}`, sandbox.Invalid, "xxx"},
		"reply no JSON":   {200, `{"entry":`, sandbox.Unavailable, "decode reply"},
		"reply too large": {200, strings.Repeat(" ", MaxUnaryResponse+1), sandbox.Unavailable, "exceeds"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFakeGuest(t, 10, answer(tc.status, nil, tc.body))
			_, err := g.Stat(t.Context(), "/x", FileOptions{})
			if sandbox.KindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.text) || len(err.Error()) > 5000 {
				t.Errorf("error of kind %q: %.300v", sandbox.KindOf(err), err)
			}
		})
	}
}

func TestProcessStream(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	end := env(0, `{"event":{"end":{"exitCode":1,"exited":true,"status":"exit status 1"}}}`)
	for name, tc := range map[string]struct {
		body string
		want string // what is read, in short
	}{
		"whole": {
			env(0, started) + env(0, `{"event":{"data":{"stdout":"`+b64([]byte("hi"))+`"}}}`) + env(0, `{"event":{"keepalive":{}}}`) +
				env(0, `{ "event" : {"data":{"stderr":"`+b64([]byte("err"))+`"}}}`) + end + env(2, `{}`),
			"7: out hi, err err, exit 1, EOF",
		},
		"keepalive first":       {env(0, `{"event":{"keepalive":{}}}`) + env(0, started) + end + env(2, `{}`), "7: exit 1, EOF"},
		"unknown event":         {env(0, started) + env(0, `{"event":{"new":{}}}`) + end + env(2, `{}`), "7: exit 1, EOF"},
		"end without trailer":   {env(0, started) + end, "7: exit 1, EOF"},
		"error after end":       {env(0, started) + end + env(2, `{"error":{"code":"internal"}}`), "7: exit 1, EOF"},
		"broken off":            {env(0, started), "7: unavailable: stream broke off"},
		"cut in a message":      {env(0, started) + "\x00\x00\x00\x00\x09{", "7: unavailable: unexpected EOF"},
		"ended without end":     {env(0, started) + env(2, `{}`), "7: unavailable: stream broke off"},
		"error":                 {env(0, started) + env(2, `{"error":{"code":"not_found","message":"m"}}`), "7: not_found: m"},
		"error at once":         {env(2, `{"error":{"code":"invalid_argument","message":"m"}}`), "invalid: m"},
		"no start":              {end, "unavailable: does not begin"},
		"two starts":            {env(0, started) + env(0, started), "7: unavailable: second start"},
		"empty":                 {"", "unavailable: broke off"},
		"too large":             {env(0, started) + "\x00\x00\x10\x00\x01", "7: unavailable: exceeds"},
		"unknown flags":         {env(0, started) + env(1, "{}"), "7: unavailable: unknown flags"},
		"several in one":        {env(0, started) + env(0, `{"event":{"start":{},"end":{}}}`), "7: unavailable: several"},
		"no JSON":               {env(0, started) + env(0, `{"event"`), "7: unavailable: decode event"},
		"bad base64":            {env(0, started) + env(0, `{"event":{"data":{"stdout":"?"}}}`), "7: unavailable: decode event"},
		"control bytes in end":  {env(0, started) + env(0, "{\"event\":{\"end\":{\"exitCode\":1,\"exited\":true,\"status\":\"a\\u0007b\"}}}") + env(2, "{}"), "7: exit 1, EOF"},
		"trailer without JSON":  {env(0, started) + env(2, `x`), "7: unavailable: decode end"},
		"data without contents": {env(0, started) + env(0, `{"event":{"data":{}}}`) + end + env(2, `{}`), "7: exit 1, EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFakeGuest(t, 10, answer(200, nil, tc.body))
			got := ""
			p, err := g.Start(t.Context(), &StartRequest{}, StartOptions{})
			if err == nil {
				got = fmt.Sprintf("%d: ", p.PID())
			}
			for err == nil {
				var ev *Event
				ev, err = p.Next()
				switch {
				case err == io.EOF:
					got += "EOF"
				case err != nil:
				case ev.End != nil:
					got += fmt.Sprintf("exit %d, ", ev.End.Code())
					if strings.Contains(ev.End.Text, "\a") {
						t.Error("control bytes in the status")
					}
				case ev.Data.Stdout != nil:
					got += "out " + string(ev.Data.Stdout) + ", "
				case ev.Data.Stderr != nil:
					got += "err " + string(ev.Data.Stderr) + ", "
				}
			}
			kind, text, isErr := strings.Cut(strings.TrimPrefix(tc.want, "7: "), ": ")
			if err == io.EOF {
				if got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				return
			}
			if !isErr || string(sandbox.KindOf(err)) != kind || !strings.Contains(err.Error(), text) ||
				strings.HasPrefix(tc.want, "7: ") != (got == "7: ") {
				t.Errorf("got %q, %v of kind %q; want %q", got, err, sandbox.KindOf(err), tc.want)
			}
		})
	}
}

// A request carries the user, the timeout and the protocol's headers.
func TestRequest(t *testing.T) {
	var got http.Header
	var body string
	g := newFakeGuest(t, 10, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		io.WriteString(w, env(0, started))
	})
	p, err := g.Start(t.Context(), &StartRequest{Process: ProcessConfig{Cmd: "x"}}, StartOptions{User: "root", Timeout: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	for k, want := range map[string]string{
		"Authorization":            "Basic " + base64.StdEncoding.EncodeToString([]byte("root:")),
		"Content-Type":             "application/connect+json",
		"Connect-Protocol-Version": "1",
		"Connect-Timeout-Ms":       "1500",
		"Accept-Encoding":          "",
	} {
		if got.Get(k) != want {
			t.Errorf("%s is %q, want %q", k, got.Get(k), want)
		}
	}
	if want := env(0, `{"process":{"cmd":"x"}}`); body != want {
		t.Errorf("body is %q, want %q", body, want)
	}
}

// Calls share one connection, also those that begin at once; where a guest
// bounds its streams, more connections serve the rest.
func TestConnections(t *testing.T) {
	for _, tc := range []struct{ maxStreams, calls, most int }{{1000, 100, 1}, {5, 40, 40}} {
		var open atomic.Int32
		release := make(chan struct{})
		g := newFakeGuest(t, tc.maxStreams, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == PathHealth {
				if int(open.Add(1)) == tc.calls {
					close(release)
				}
				<-release
			}
			w.WriteHeader(204)
		})
		if tc.most > 1 {
			// The bound is known after a first call.
			g.Stat(t.Context(), "/", FileOptions{})
		}
		var wg sync.WaitGroup
		for range tc.calls {
			wg.Go(func() {
				if err := g.Health(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := int(g.dials.Load()); n > tc.most || tc.most > 1 && n < 2 {
			t.Errorf("%d dials for %d calls", n, tc.calls)
		}
	}
}

func TestDialErrors(t *testing.T) {
	gone := sandbox.Errorf(sandbox.NotFound, "box is gone")
	c := NewClient(func(context.Context) (net.Conn, error) { return nil, gone })
	defer c.Close()
	err := c.Health(t.Context())
	if sandbox.KindOf(err) != sandbox.Unavailable || !errors.Is(err, gone) || !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("error is %v of kind %q", err, sandbox.KindOf(err))
	}

	// A dial that hangs ends with the call, and at the latest with the client.
	ended := make(chan struct{})
	c = NewClient(func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = c.Health(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("error is %v", err)
	}
	c.Close()
	<-ended
	if err := c.Health(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
	c.Close()
}

// Close ends streams that are open.
func TestCloseEndsStreams(t *testing.T) {
	g := newFakeGuest(t, 10, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, env(0, started))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	p, err := g.Connect(t.Context(), ProcessSelector{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() { _, err := p.Next(); failed <- err }()
	g.via().CloseIdleConnections() // it is not idle
	select {
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(20 * time.Millisecond):
	}
	g.Close()
	if err := <-failed; sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("error is %v", err)
	}
}

func TestReadFile(t *testing.T) {
	ranged := func(v string) http.Header { return http.Header{"Content-Range": {v}} }
	for name, tc := range map[string]struct {
		status         int
		header         http.Header
		body           string
		offset, length int64
		want           string
		size           int64
		text           string // of the error
	}{
		"part":              {206, ranged("bytes 2-4/10"), "cde", 2, 3, "cde", 10, ""},
		"less than said":    {206, ranged("bytes 2-9/10"), "cde", 2, -1, "", 10, "unexpected EOF"},
		"more than asked":   {206, ranged("bytes 2-9/10"), "cdefghij", 2, 3, "cde", 10, ""},
		"other part":        {206, ranged("bytes 0-4/10"), "abcde", 2, 3, "", 0, "another range"},
		"no range":          {206, nil, "cde", 2, 3, "", 0, "bad range"},
		"bad range":         {206, ranged("bytes 2-4/3"), "cde", 2, 3, "", 0, "bad range"},
		"whole instead":     {200, nil, "abcdefghij", 2, 3, "cde", 10, ""},
		"whole, past end":   {200, nil, "abc", 5, 3, "", 3, ""},
		"past the end":      {416, ranged("bytes */3"), "", 5, 3, "", 3, ""},
		"refused in bounds": {416, ranged("bytes */30"), "", 5, 3, "", 0, "refused a range"},
		"not there":         {404, nil, `{"code":404,"message":"gone"}`, 0, -1, "", 0, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFakeGuest(t, 10, answer(tc.status, tc.header, tc.body))
			r, size, err := g.Read(t.Context(), "/f", tc.offset, tc.length, FileOptions{})
			var b []byte
			if err == nil {
				b, err = io.ReadAll(r)
				r.Close()
			}
			if tc.text != "" {
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error is %v, want %q", err, tc.text)
				}
				return
			}
			if err != nil || string(b) != tc.want || size != tc.size {
				t.Errorf("%q of %d, %v; want %q of %d", b, size, err, tc.want, tc.size)
			}
		})
	}
	g := newFakeGuest(t, 10, answer(200, nil, ""))
	if _, _, err := g.Read(t.Context(), "/f", -1, 1, FileOptions{}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("negative offset: %v", err)
	}
}

func TestWatcher(t *testing.T) {
	g := newFakeGuest(t, 10, answer(200, nil, env(0, `{"keepalive":{}}`)+env(0, `{"start":{}}`)+env(0, `{"keepalive":{}}`)+
		env(0, `{"filesystem":{"name":"a","type":"EVENT_TYPE_WRITE"}}`)+env(2, `{"error":{"code":"resource_exhausted","message":"lost"}}`)))
	w, err := g.Watch(t.Context(), "/x", true, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&FilesystemEvent{Name: "a", Type: EventWrite}, ev); diff != "" {
		t.Error(diff)
	}
	if _, err := w.Next(); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("error is %v", err)
	}
	w.Close()
}

// A connection that was lost, or closed while idle, is replaced.
func TestReconnects(t *testing.T) {
	var mu sync.Mutex
	var conns []net.Conn
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == PathHealth {
			w.WriteHeader(204)
			return
		}
		io.WriteString(w, env(0, started))
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-release:
			io.WriteString(w, env(0, `{"event":{"end":{}}}`)+env(2, `{}`))
		}
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(l)
	defer srv.Close()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
		if err == nil {
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
		return conn, err
	})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 5 {
		if err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
		c.via().CloseIdleConnections()
	}
	for range 5 {
		if err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		conns[len(conns)-1].Close()
		mu.Unlock()
		for c.Health(ctx) != nil { // the loss is noticed at some time
			if ctx.Err() != nil {
				t.Fatal("never connected again")
			}
		}
	}
	// Closing idle connections leaves a stream that is open, and calls go on beside it.
	p, err := c.Connect(ctx, ProcessSelector{PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	c.via().CloseIdleConnections()
	for range 3 {
		if err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
		c.via().CloseIdleConnections()
	}
	close(release)
	if ev, err := p.Next(); err != nil || ev.End == nil {
		t.Errorf("%v, %v", ev, err)
	}
}

// TestIdleClient has clients whose connection has ended, as those of sandboxes on the
// disk. They have no transport, and connect again.
func TestIdleClient(t *testing.T) {
	g := newFakeGuest(t, 10, func(w http.ResponseWriter, r *http.Request) {})
	for range 3 {
		if err := g.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.hangUp()
		g.mu.Lock()
		idle := g.transport == nil && len(g.conns) == 0
		g.mu.Unlock()
		if !idle {
			t.Fatal("a client without a connection has a transport")
		}
	}
}

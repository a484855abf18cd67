package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/files"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (h *host) watch(dir string, recursive bool) *guestapi.Watcher {
	h.t.Helper()
	w, err := h.Watch(h.t.Context(), dir, recursive, guestapi.FileOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { w.Close() })
	return w
}

// changes reads events until that of the file "done".
func changes(t *testing.T, w *guestapi.Watcher) []guestapi.FilesystemEvent {
	t.Helper()
	var list []guestapi.FilesystemEvent
	for {
		ev, err := w.Next()
		if err != nil {
			t.Fatalf("%v, after %v", err, list)
		}
		if ev.Name == "done" {
			return list
		}
		list = append(list, *ev)
	}
}

func TestWatch(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	h.write(dir+"/sub/old", "")
	flat, deep := h.watch(dir, false), h.watch(dir, true)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(dir+"/f", []byte("x"), 0o644))
	must(os.Chmod(dir+"/f", 0o600))
	must(os.Rename(dir+"/f", dir+"/bad\xff"))
	must(os.WriteFile(dir+"/sub/g", nil, 0o644))
	must(os.Remove(dir + "/bad\xff"))
	must(os.Rename(dir+"/sub", dir+"/gone"))
	must(os.RemoveAll(dir + "/gone"))
	must(os.WriteFile(dir+"/done", nil, 0o644))
	type ev = guestapi.FilesystemEvent
	bad := func(what guestapi.EventType) ev {
		return ev{Name: "bad\uFFFD", RawName: []byte("bad\xff"), Type: what}
	}
	want := []ev{
		{Name: "f", Type: guestapi.EventCreate}, {Name: "f", Type: guestapi.EventWrite}, {Name: "f", Type: guestapi.EventChmod},
		{Name: "f", Type: guestapi.EventRename}, bad(guestapi.EventCreate), bad(guestapi.EventRemove),
		{Name: "sub", Type: guestapi.EventRename}, {Name: "gone", Type: guestapi.EventCreate}, {Name: "gone", Type: guestapi.EventRemove},
	}
	if diff := cmp.Diff(want, changes(t, flat)); diff != "" {
		t.Errorf("flat (-want +got):\n%s", diff)
	}
	got := changes(t, deep)
	if !slices.ContainsFunc(got, func(e ev) bool { return e.Name == "sub/g" && e.Type == guestapi.EventCreate }) {
		t.Errorf("recursive: %+v", got)
	}
}

// What appears in a new directory before it could be watched is told, too.
func TestWatchNewDirectories(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	w := h.watch(dir, true)
	if err := os.MkdirAll(dir+"/a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/a/b/c/f", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for !seen["a"] || !seen["a/b"] || !seen["a/b/c"] || !seen["a/b/c/f"] {
		ev, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		seen[ev.Name] = true
	}
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir + "-moved")
	for {
		if _, err := w.Next(); err != nil {
			wantKind(t, err, sandbox.NotFound, "removed or moved")
			break
		}
	}
}

func TestWatchRefuses(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	h.write(dir+"/f", "")
	_, err := h.Watch(t.Context(), dir+"/none", false, noOpts)
	wantKind(t, err, sandbox.NotFound, "none")
	_, err = h.Watch(t.Context(), dir+"/f", true, noOpts)
	wantKind(t, err, sandbox.Invalid, "not a directory")
}

// Without inotify instances, or with too many watches, there is a clear error,
// and none is leaked.
func TestWatchExhaustion(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	var open []*guestapi.Watcher
	var last error
	for range files.MaxWatches + 1 {
		w, err := h.Watch(t.Context(), dir, false, noOpts)
		if err != nil {
			last = err
			break
		}
		open = append(open, w)
	}
	wantKind(t, last, sandbox.Exhausted, "")
	for _, w := range open {
		w.Close()
	}
	eventually(t, "watches are free again", func() bool {
		w, err := h.Watch(t.Context(), dir, false, noOpts)
		if err != nil {
			return false
		}
		w.Close()
		return true
	})
}

// rawClient speaks Connect's JSON as a stranger would, over HTTP/1.1.
type rawClient struct {
	t *testing.T
	c http.Client
}

func newRawClient(t *testing.T, h *host) *rawClient {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer(h.socket)(ctx) },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &rawClient{t, http.Client{Transport: transport}}
}

func (c *rawClient) post(path, contentType, body string) (int, string) {
	c.t.Helper()
	resp, err := c.c.Post("http://guest"+path, contentType, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestPolledWatch(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	c := newRawClient(t, h)
	status, body := c.post(guestapi.FSCreateWatcher, "application/json", fmt.Sprintf(`{"path":%q,"recursive":true}`, dir))
	var created guestapi.CreateWatcherResponse
	if err := json.Unmarshal([]byte(body), &created); err != nil || status != 200 {
		t.Fatal(status, body, err)
	}
	ask := fmt.Sprintf(`{"watcherId":%q}`, created.WatcherID)
	if status, body := c.post(guestapi.FSGetWatcherEvents, "application/json", ask); status != 200 || body != `{"events":[]}` {
		t.Errorf("%d %s", status, body)
	}
	h.write(dir+"/f", "x")
	eventually(t, "the event is there", func() bool {
		_, body := c.post(guestapi.FSGetWatcherEvents, "application/json", ask)
		return strings.Contains(body, `{"name":"f","type":"EVENT_TYPE_CREATE"}`)
	})
	// More than it holds is an error, not a loss in silence.
	for i := range 2 {
		h.write(fmt.Sprintf("%s/%d", dir, i), "")
	}
	eventually(t, "the watcher gives up", func() bool {
		for i := range files.MaxWatchEvents + 100 { // in turns: like events are merged
			if err := os.Chmod(fmt.Sprintf("%s/%d", dir, i%2), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		status, body := c.post(guestapi.FSGetWatcherEvents, "application/json", ask)
		return status == 429 && strings.Contains(body, "lost")
	})
	if status, _ := c.post(guestapi.FSRemoveWatcher, "application/json", ask); status != 200 {
		t.Error(status)
	}
	for _, path := range []string{guestapi.FSRemoveWatcher, guestapi.FSGetWatcherEvents} {
		if status, body := c.post(path, "application/json", ask); status != 404 || !strings.Contains(body, `"code":"not_found"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Requests of any form get an answer of Connect's form.
func TestRawRequests(t *testing.T) {
	h := newHost(t)
	c := newRawClient(t, h)
	const unary, streaming = "application/json", "application/connect+json"
	envelope := func(flags byte, msg string) string {
		return string(guestapi.AppendEnvelope(nil, flags, []byte(msg)))
	}
	for name, tc := range map[string]struct {
		path, contentType, body string
		status                  int
		want                    string
	}{
		"unknown procedure": {"/process.Process/Fly", unary, "{}", 404, `{"code":"unimplemented","message":"no such procedure: /process.Process/Fly"}`},
		"unknown path":      {"/x", unary, "{}", 404, "unimplemented"},
		"media type":        {guestapi.ProcList, "text/plain", "{}", 415, ""},
		"stream as unary":   {guestapi.ProcStart, unary, "{}", 415, ""},
		"no JSON":           {guestapi.ProcList, unary, "{", 400, "invalid_argument"},
		"unknown fields":    {guestapi.ProcList, unary, `{"a":1}`, 200, `{"processes":[]}`},
		"wrong type":        {guestapi.ProcSendSignal, unary, `{"process":{"pid":"x"}}`, 400, "invalid_argument"},
		"negative pid":      {guestapi.ProcSendSignal, unary, `{"process":{"pid":-1}}`, 400, "invalid_argument"},
		"too long":          {guestapi.FSStat, unary, `{"path":"` + strings.Repeat("x", guestapi.MaxUnaryRequest) + `"}`, 400, "exceeds"},
		"empty stream":      {guestapi.ProcStart, streaming, "", 200, "canceled"},
		"cut envelope":      {guestapi.ProcStart, streaming, "\x00\x00\x00\x00\x09{}", 200, "canceled"},
		"huge envelope":     {guestapi.ProcStart, streaming, "\x00\xff\xff\xff\xff{}", 200, "exceeds"},
		"compressed":        {guestapi.ProcStart, streaming, envelope(1, "{}"), 200, "unknown flags"},
		"no command":        {guestapi.ProcStart, streaming, envelope(0, "{}"), 200, "no command"},
		"a run": {guestapi.ProcStart, streaming, envelope(0, `{"process":{"cmd":"/bin/echo","args":["hi"],"cwd":"/"},"stdin":false}`), 200,
			`{"event":{"data":{"stdout":"aGkK"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := c.post(tc.path, tc.contentType, tc.body)
			if status != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%d %q, want %d %q", status, body, tc.status, tc.want)
			}
		})
	}
	resp, err := c.c.Get("http://guest" + guestapi.ProcList)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

// A stream without events says now and then that it lives.
func TestKeepalive(t *testing.T) {
	h := newHost(t)
	c := newRawClient(t, h)
	body := guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"sleep","args":["1.5"],"cwd":"/"},"stdin":false}`))
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://guest"+guestapi.ProcStart, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", guestapi.ContentTypeStream)
	req.Header.Set("Keepalive-Ping-Interval", "1")
	began := time.Now()
	resp, err := c.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var events []string
	for {
		_, msg, err := guestapi.ReadEnvelope(resp.Body, nil, guestapi.MaxStreamMessage)
		if err != nil {
			break
		}
		events = append(events, string(msg[:min(len(msg), 24)]))
	}
	want := []string{`{"event":{"start":{"pid"`, `{"event":{"keepalive":{}`, `{"event":{"end":{"exitCo`, `{}`}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("after %v (-want +got):\n%s", time.Since(began), diff)
	}
}

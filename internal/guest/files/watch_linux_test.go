package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/files"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (h *host) watch(dir string, recursive bool) *guestapi.Watcher {
	h.T.Helper()
	w, err := h.Watch(h.T.Context(), dir, recursive, guestapi.FileOptions{})
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { w.Close() })
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
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/sub/old", "")
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
	dir := guesttest.UserDir(t, "")
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
			guesttest.WantKind(t, err, sandbox.NotFound, "removed or moved")
			break
		}
	}
}

func TestWatchRefuses(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/f", "")
	_, err := h.Watch(t.Context(), dir+"/none", false, noOpts)
	guesttest.WantKind(t, err, sandbox.NotFound, "none")
	_, err = h.Watch(t.Context(), dir+"/f", true, noOpts)
	guesttest.WantKind(t, err, sandbox.Invalid, "not a directory")
}

// Without inotify instances, or with too many watches, there is a clear error,
// and none is leaked.
func TestWatchExhaustion(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
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
	guesttest.WantKind(t, last, sandbox.Exhausted, "")
	for _, w := range open {
		w.Close()
	}
	guesttest.Eventually(t, "watches are free again", func() bool {
		w, err := h.Watch(t.Context(), dir, false, noOpts)
		if err != nil {
			return false
		}
		w.Close()
		return true
	})
}

func TestPolledWatch(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	c := guesttest.NewRawClient(t, &h.Host)
	status, body := c.Post(guestapi.FSCreateWatcher, "application/json", fmt.Sprintf(`{"path":%q,"recursive":true}`, dir))
	var created guestapi.CreateWatcherResponse
	if err := json.Unmarshal([]byte(body), &created); err != nil || status != 200 {
		t.Fatal(status, body, err)
	}
	ask := fmt.Sprintf(`{"watcherId":%q}`, created.WatcherID)
	if status, body := c.Post(guestapi.FSGetWatcherEvents, "application/json", ask); status != 200 || body != `{"events":[]}` {
		t.Errorf("%d %s", status, body)
	}
	// An answer has all that happened before the request, however busy the guest is.
	for i := range 200 {
		name := fmt.Sprint("new", i)
		h.WriteText(dir+"/"+name, "x")
		_, body := c.Post(guestapi.FSGetWatcherEvents, "application/json", ask)
		if !strings.Contains(body, fmt.Sprintf(`{"name":%q,"type":"EVENT_TYPE_CREATE"}`, name)) {
			t.Fatalf("after %s: %s", name, body)
		}
	}
	// More than it holds is an error, not a loss in silence.
	for i := range files.MaxWatchEvents + 100 { // in turns: like events are merged
		if err := os.Chmod(fmt.Sprintf("%s/new%d", dir, i%2), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if status, body := c.Post(guestapi.FSGetWatcherEvents, "application/json", ask); status != 200 {
		t.Errorf("%d %.1000s", status, body)
	}
	if status, body := c.Post(guestapi.FSGetWatcherEvents, "application/json", ask); status != 429 || !strings.Contains(body, "lost") {
		t.Errorf("%d %.1000s", status, body)
	}
	if status, _ := c.Post(guestapi.FSRemoveWatcher, "application/json", ask); status != 200 {
		t.Error(status)
	}
	for _, path := range []string{guestapi.FSRemoveWatcher, guestapi.FSGetWatcherEvents} {
		if status, body := c.Post(path, "application/json", ask); status != 404 || !strings.Contains(body, `"code":"not_found"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

package drivertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testWatch checks that changes below a directory are reported.
func testWatch(t *testing.T, s *suite) {
	b := s.newBox(t)
	dir := b.Dir(t)
	t.Run("Flat", func(t *testing.T) { watchFlat(t, b, dir) })
	t.Run("Recursive", func(t *testing.T) { watchRecursive(t, b, dir) })
	t.Run("End", func(t *testing.T) { watchEnd(t, b, dir) })
}

// events reads a watcher in the background.
type events struct {
	w    *guestapi.Watcher
	next chan *guestapi.FilesystemEvent
	err  chan error
	seen []guestapi.FilesystemEvent
}

func (b *Box) watch(t testing.TB, path string, recursive bool) *events {
	t.Helper()
	w, err := b.Client.Watch(t.Context(), path, recursive, asUser)
	if err != nil {
		t.Fatalf("Watch %s: %v", path, err)
	}
	e := &events{w: w, next: make(chan *guestapi.FilesystemEvent, 1000), err: make(chan error, 1)}
	go func() {
		for {
			ev, err := w.Next()
			if err != nil {
				e.err <- err
				return
			}
			select {
			case e.next <- ev:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { w.Close() })
	return e
}

// want waits for an event of one of the types.
func (e *events) want(t testing.TB, name string, types ...guestapi.EventType) {
	t.Helper()
	deadline := time.After(settleTime)
	for {
		select {
		case ev := <-e.next:
			e.seen = append(e.seen, *ev)
			if ev.Name == name && slices.Contains(types, ev.Type) {
				return
			}
		case err := <-e.err:
			t.Fatalf("the watch of %s ended: %v", name, err)
		case <-deadline:
			t.Fatalf("no event %v of %s came; seen: %+v", types, name, e.seen)
		}
	}
}

func watchFlat(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkdir -p flat/sub; touch flat/old")
	e := b.watch(t, dir+"/flat", false)
	b.MustSh(t, "echo x > flat/new")
	e.want(t, "new", guestapi.EventCreate)
	b.MustSh(t, "echo y >> flat/old")
	e.want(t, "old", guestapi.EventWrite)
	b.MustSh(t, "chmod 600 flat/old")
	e.want(t, "old", guestapi.EventChmod)
	b.MustSh(t, "mv flat/new flat/newer")
	e.want(t, "new", guestapi.EventRename)
	e.want(t, "newer", guestapi.EventCreate, guestapi.EventRename)
	b.MustSh(t, "touch flat/sub/unseen; rm flat/old")
	e.want(t, "old", guestapi.EventRemove)
	b.write(t, dir+"/flat/by the guest", "x")
	e.want(t, "by the guest", guestapi.EventCreate, guestapi.EventRename)
	for _, ev := range e.seen {
		if strings.Contains(ev.Name, "unseen") {
			t.Errorf("a watch that is not recursive reports %+v", ev)
		}
	}
}

func watchRecursive(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkdir -p tree/a/b")
	e := b.watch(t, dir+"/tree", true)
	b.MustSh(t, "touch tree/a/b/deep")
	e.want(t, "a/b/deep", guestapi.EventCreate)
	b.MustSh(t, "mkdir -p tree/new")
	e.want(t, "new", guestapi.EventCreate)
	// The guest may need a moment to watch a new directory.
	eventually(t, "no event below a directory that was made after the watch began", func() bool {
		b.MustSh(t, "rm -f tree/new/file; touch tree/new/file; sleep 0.1")
		for {
			select {
			case ev := <-e.next:
				if ev.Name == "new/file" {
					return true
				}
			default:
				return false
			}
		}
	})
}

func watchEnd(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkdir -p ended")
	e := b.watch(t, dir+"/ended", false)
	if err := e.w.Close(); err != nil {
		t.Errorf("Watcher.Close: %v", err)
	}
	select {
	case <-e.err:
	case <-time.After(settleTime):
		t.Error("Watcher.Next does not return after Close")
	}
	_, err := b.Client.Watch(step(t), dir+"/none", false, asUser)
	wantKind(t, "Watch of what is not there", err, sandbox.NotFound)
	b.write(t, dir+"/plain", "x")
	_, err = b.Client.Watch(step(t), dir+"/plain", false, asUser)
	wantRefused(t, "Watch of a file", err)
}

package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// remote returns the workspaces of a directory through a connection.
func remote(t *testing.T, theirs *Conversations) *Remote {
	t.Helper()
	set, err := OpenServed(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(set.Handler())
	t.Cleanup(func() {
		s.Close()
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := OpenRemote(RemoteOptions{
		Secrets: t.TempDir(), Dir: "/there", Conversations: theirs,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// keepers are what a test runs on: both are to do the same.
func keepers(t *testing.T, test func(t *testing.T, k Keeper)) {
	t.Run("Local", func(t *testing.T) {
		set, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		test(t, Local{set})
	})
	t.Run("Remote", func(t *testing.T) { test(t, remote(t, nil)) })
}

func TestKeepers(t *testing.T) {
	keepers(t, func(t *testing.T, k Keeper) {
		ctx := t.Context()
		id := NewID()
		if _, err := k.Open(id); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Open of none: %v", err)
		}
		for _, want := range []bool{true, false} {
			if made, err := k.Make(id); err != nil || made != want {
				t.Fatalf("Make: %v, %v", made, err)
			}
		}
		if filepath.Base(k.Path(id)) != string(id) {
			t.Errorf("Path: %s", k.Path(id))
		}
		w, err := k.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		before, err := w.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		since := w.Clock()
		name, text := "dir/ö ?&#%2f", "0123456789"
		if runtime.GOOS == "windows" {
			if _, err := w.Write(ctx, name, strings.NewReader(text)); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("Write of a name that cannot be: %v", err)
			}
			name = "dir/ö &#%2f"
		}
		if n, err := w.Write(ctx, name, strings.NewReader(text)); n != int64(len(text)) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		if _, err := w.Write(ctx, "../out", strings.NewReader(text)); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Write to ../out: %v", err)
		}
		broken := errors.New("broken")
		if _, err := w.Write(ctx, "half", io.MultiReader(strings.NewReader(text), &failing{broken})); !errors.Is(err, broken) {
			t.Errorf("Write of what fails: %v", err)
		}
		after, err := w.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if c := Changes(before, after, since, 10); c.Created != 1 || len(c.Files) != 1 || c.Files[0].Size != int64(len(text)) {
			t.Errorf("changes: %+v", c)
		}
		if u, err := w.Measure(ctx); err != nil || u != after.Usage || u.Files != 2 {
			t.Errorf("Measure: %+v, %v; the snapshot has %+v", u, err, after.Usage)
		}
		if used, ok := w.DiskUsed(); ok && used <= 0 {
			t.Errorf("DiskUsed: %d", used)
		}
		read(t, w, name, text)
		if _, err := w.Read(t.Context(), "dir/none"); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Read of none: %v", err)
		}
		if _, err := w.Read(t.Context(), "dir"); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Read of a directory: %v", err)
		}

		var archive bytes.Buffer
		if _, err := w.Export(ctx, &archive, 1<<20); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Export(ctx, io.Discard, 5); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("Export of too much: %v", err)
		}
		other := NewID()
		if _, err := k.Make(other); err != nil {
			t.Fatal(err)
		}
		o, err := k.Open(other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Import(ctx, bytes.NewReader(archive.Bytes()), 5, 0); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("Import of too much: %v", err)
		}
		if _, err := o.Import(ctx, strings.NewReader("no archive"), 1<<20, 0); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Import of no archive: %v", err)
		}
		if _, err := o.Import(ctx, &archive, 1<<20, 0); err != nil {
			t.Fatal(err)
		}
		read(t, o, name, text)
		if err := errors.Join(o.Close(), w.Close()); err != nil {
			t.Error(err)
		}
		purge, err := k.Remove(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Open(id); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Open of one that was removed: %v", err)
		}
		if err := purge(); err != nil {
			t.Error(err)
		}
		if _, err := k.Remove(id); err != nil {
			t.Errorf("Remove of none: %v", err)
		}
	})
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// read reads a file whole, and from places in it.
func read(t *testing.T, w Opened, name, want string) {
	t.Helper()
	f, err := w.Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Info.Size() != int64(len(want)) || f.Version == "" || !f.Info.Mode().IsRegular() {
		t.Errorf("%q is %+v, version %q", name, f.Info, f.Version)
	}
	for _, at := range []int64{0, int64(len(want)) / 3, 1, int64(len(want))} {
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want[at:] {
			t.Errorf("%q from %d: %q, %v", name, at, got, err)
		}
	}
	if end, err := f.Seek(-1, io.SeekEnd); err != nil || end != int64(len(want))-1 {
		t.Errorf("Seek to the end: %d, %v", end, err)
	}
}

// TestRemoteFileChanged reads on in a file that was replaced.
func TestRemoteFileChanged(t *testing.T) {
	k := remote(t, nil)
	id := NewID()
	if _, err := k.Make(id); err != nil {
		t.Fatal(err)
	}
	w, err := k.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if _, err := w.Write(t.Context(), "file", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.Read(t.Context(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.Write(t.Context(), "file", strings.NewReader("third")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(2, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err == nil {
		t.Errorf("read on: %q, without an error", got)
	}
}

// TestRemoteConversations finds directories of mcp-code-runner by both names.
func TestRemoteConversations(t *testing.T) {
	k := remote(t, &Conversations{Secret: "s", Principal: "them"})
	id, ok := k.Conversation("them", "c")
	if !ok {
		t.Fatal("it is no conversation")
	}
	if _, err := k.Make(id[:shortID]); err != nil {
		t.Fatal(err)
	}
	if got, ok := k.Conversation("them", "c"); !ok || got != id[:shortID] {
		t.Errorf("ID of a conversation with a short directory: %s", got)
	}
	if got, ok := k.Find(string(id)); !ok || got != id[:shortID] {
		t.Errorf("Find: %s, %v", got, ok)
	}
	if _, ok := k.Find("../../etc"); ok {
		t.Error("found what is no name")
	}
	if id, ok := k.Conversation("others", "c"); ok {
		t.Errorf("another principal has the conversation %s", id)
	}
}

// TestRemoteBroken speaks to what is no set of workspaces.
func TestRemoteBroken(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refuses":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
		"says odd": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{") },
		"errs odd": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerError, "{")
			w.WriteHeader(http.StatusUnprocessableEntity)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(handler)
			defer s.Close()
			r, err := OpenRemote(RemoteOptions{Secrets: t.TempDir(), Dir: "/there", Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Make(NewID()); !errors.Is(err, sandbox.Unavailable) || sandbox.HintOf(err) == "" {
				t.Errorf("Make: %v (hint %q), want kind unavailable and a hint", err, sandbox.HintOf(err))
			}
			w := remoteWorkspace{r, NewID()}
			if _, err := w.Snapshot(t.Context()); !errors.Is(err, sandbox.Unavailable) {
				t.Errorf("Snapshot: %v", err)
			}
			if _, err := w.Read(t.Context(), "x"); !errors.Is(err, sandbox.Unavailable) {
				t.Errorf("Read: %v", err)
			}
		})
	}
}

// TestRemoteHangs has the other machine take connections and answer nothing.
func TestRemoteHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // whose connections nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := OpenRemote(RemoteOptions{Secrets: t.TempDir(), Dir: "/there", Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	read := make(chan error, 1)
	go func() {
		_, err := remoteWorkspace{r, NewID()}.Read(ctx, "x")
		read <- err
	}()
	select {
	case err := <-read:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Read goes on when its context has ended")
	}
}

// TestRemoteDiskUsed has many ask at one time for what takes longer to answer
// than an answer is good: they do not wait for each other's questions.
func TestRemoteDiskUsed(t *testing.T) {
	const callers = 10
	var asked atomic.Int32
	r, err := OpenRemote(RemoteOptions{Secrets: t.TempDir(), Dir: "/there", Dial: func(context.Context) (net.Conn, error) {
		asked.Add(1)
		time.Sleep(2 * diskEvery)
		return nil, errors.New("no answer")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if used, ok := (remoteWorkspace{r, "w"}).DiskUsed(); ok {
				t.Errorf("%d bytes", used)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n > callers/2 {
		t.Errorf("%d questions of %d callers", n, callers)
	}
}

// FuzzWorkspaceNames has names of any bytes, and both keepers say the same.
func FuzzWorkspaceNames(f *testing.F) {
	for _, name := range []string{"a", "../a", "a/./b", "\x00", "a\xffb", "%2e%2e/x", "?&=#", strings.Repeat("x", 300)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var kinds []sandbox.Kind
		keepers(t, func(t *testing.T, k Keeper) {
			id := NewID()
			if _, err := k.Make(id); err != nil {
				t.Fatal(err)
			}
			w, err := k.Open(id)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Write(t.Context(), name, strings.NewReader("x"))
			kind := sandbox.KindOf(err)
			if err == nil {
				kind = ""
				read(t, w, name, "x")
			}
			kinds = append(kinds, kind)
		})
		if kinds[0] != kinds[1] {
			t.Errorf("%q: %q", name, kinds)
		}
	})
}

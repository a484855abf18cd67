package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// worldSpaces keeps workspaces that have a size and no files, on one disk.
type worldSpaces struct {
	mu     sync.Mutex
	spaces map[string]*worldSpace
	looks  int  // at the disk
	counts int  // of workspaces
	broken bool // they cannot be counted
}

func newWorldSpaces() *worldSpaces { return &worldSpaces{spaces: map[string]*worldSpace{}} }

type worldSpace struct {
	all   *worldSpaces
	bytes int64
}

func (s *worldSpace) grow(n int64) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.bytes = max(0, s.bytes+n)
}

// setBroken has counts fail, or succeed again.
func (k *worldSpaces) setBroken(broken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = broken
}

// total is what all workspaces hold together.
func (k *worldSpaces) total() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spaces {
		n += s.bytes
	}
	return n
}

// work returns how often the disk was looked at, and workspaces counted.
func (k *worldSpaces) work() (looks, counts int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks, k.counts
}

func (k *worldSpaces) space(path string) *worldSpace {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spaces[path] == nil {
		k.spaces[path] = &worldSpace{all: k}
	}
	return k.spaces[path]
}

// Conversation gives each workspace an ID that tests know: principal and name.
func (k *worldSpaces) Conversation(p sandbox.Principal, name string) (workspace.ID, bool) {
	return workspace.ID(fmt.Sprintf("%s-%s", p, name)), true
}
func (k *worldSpaces) Key(string) []byte                { return nil }
func (k *worldSpaces) Find(string) (workspace.ID, bool) { return "", false }
func (k *worldSpaces) Path(id workspace.ID) string      { return string(id) }
func (k *worldSpaces) Close() error                     { return nil }

func (k *worldSpaces) Make(id workspace.ID) (bool, error) { k.space(string(id)); return true, nil }

func (k *worldSpaces) Remove(workspace.ID) (func() error, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "remove")
}
func (k *worldSpaces) Open(id workspace.ID) (workspace.Opened, error) {
	return k.space(string(id)), nil
}

func (s *worldSpace) Read(context.Context, string) (*workspace.File, error) {
	return nil, sandbox.Errorf(sandbox.NotFound, "read")
}

func (s *worldSpace) Write(_ context.Context, _ string, r io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, r) // out of the workspace, until all of it is there
	if err != nil {
		return 0, err
	}
	s.grow(n)
	return n, nil
}

func (s *worldSpace) Export(context.Context, io.Writer, int64) (c safepath.Counts, err error) {
	return c, sandbox.Errorf(sandbox.Unsupported, "export")
}

func (s *worldSpace) Import(context.Context, io.Reader, int64, int64) (c safepath.Counts, err error) {
	return c, sandbox.Errorf(sandbox.Unsupported, "import")
}

func (s *worldSpace) Snapshot(ctx context.Context) (*workspace.Snapshot, error) {
	snap := workspace.NewSnapshot()
	var err error
	snap.Usage, err = s.Measure(ctx)
	return snap, err
}

// Measure takes a millisecond, as for a thousand files.
func (s *worldSpace) Measure(context.Context) (sandbox.WorkspaceUsage, error) {
	time.Sleep(time.Millisecond)
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.counts++
	if s.all.broken {
		return sandbox.WorkspaceUsage{}, errors.New("input/output error")
	}
	return sandbox.WorkspaceUsage{Bytes: s.bytes, Files: 1000}, nil
}

func (s *worldSpace) DiskUsed() (int64, bool) {
	n := s.all.total()
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.looks++
	return n, true
}

func (s *worldSpace) Clock() time.Time { return time.Now() }
func (s *worldSpace) Close() error     { return nil }

// at returns the workspace or the mount that has a path, or nil.
func (b *worldBox) at(path string) *worldSpace {
	for at, space := range b.mounts {
		if strings.HasPrefix(path, at+"/") {
			return space
		}
	}
	if _, ok := withinWorkspace(path); ok {
		return b.space
	}
	return nil
}

// fill has a program of the box write so much a second to a workspace, as long
// as the box is awake and over says that it goes on. It says so with b.mu held.
func (b *worldBox) fill(space *worldSpace, perSecond string, over func() bool) {
	rate, err := strconv.ParseInt(perSecond, 10, 64)
	if err != nil {
		panic(err)
	}
	const every = 5 * time.Millisecond
	var step func()
	step = func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.dead || over() {
			return
		}
		if !b.paused {
			space.grow(rate * int64(every) / int64(time.Second))
		}
		time.AfterFunc(every, step)
	}
	time.AfterFunc(every, step)
}

// roundTripLocked does what forwarded requests do in a box with a workspace. ok is
// false for others. b.mu is held.
func (b *worldBox) roundTripLocked(req *http.Request) (_ *http.Response, ok bool, _ error) {
	if b.space == nil || req.Method != http.MethodPost {
		return nil, false, nil
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	switch req.URL.Path {
	case guestapi.PathFiles:
		space := b.space
		if path := req.URL.Query().Get("path"); path != "" && b.at(path) != nil {
			space = b.at(path)
		}
		b.mu.Unlock()
		defer b.mu.Lock()
		if _, err := io.Copy(spaceWriter{space}, req.Body); err != nil {
			return nil, true, sandbox.Errorf(sandbox.Unavailable, "forward: %w", err)
		}
		return answer, true, nil
	case guestapi.ProcStart:
		b.fill(b.space, "100000000", func() bool { return false })
		return answer, true, nil
	}
	return nil, false, nil
}

type spaceWriter struct{ s *worldSpace }

func (w spaceWriter) Write(p []byte) (int, error) {
	w.s.grow(int64(len(p)))
	return len(p), nil
}

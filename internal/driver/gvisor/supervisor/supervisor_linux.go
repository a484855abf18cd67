package supervisor

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// supervisor makes boxes for one driver, in a process of its own.
type supervisor struct {
	name   string // of this process among all supervisors, random
	dir    string // the directory of all state, shared with other supervisors
	guest  string
	null   *os.File            // the standard streams of boxes
	groups *cgroup.Hierarchies // nil if this process can make none

	// The image "host", and what is at rootfs.GuestDir; made when first needed.
	hostRoot, hostGuest func() (*rootfs.Tree, error)
	// For boxes with users of their own, if there are any: what the first is, and
	// the same two.
	firstUser           int
	userRoot, userGuest func() (*rootfs.Tree, error)
	filter              sentry.Filter
	fresh               sync.Once // for keepFresh

	keys   checkpoint.Keys
	builds builds.Set
	bases  state.Bases
	swept  sync.Once // for sweepBuilds
	holds  *os.File  // keeps the builds, until the end of the process

	mu    sync.Mutex
	boxes map[string]*box // made or attached here
}

// onceMade returns a function that calls make until it succeeds, and then always
// returns that result.
func onceMade[T any](make func() (*T, error)) func() (*T, error) {
	var mu sync.Mutex
	var made *T
	return func() (*T, error) {
		mu.Lock()
		defer mu.Unlock()
		if made != nil {
			return made, nil
		}
		var err error
		made, err = make()
		return made, err
	}
}

func (s *supervisor) boxesDir() string         { return filepath.Join(s.dir, "boxes") }
func (s *supervisor) boxDir(ref string) string { return filepath.Join(s.boxesDir(), ref) }
func (s *supervisor) remember(b *box)          { s.mu.Lock(); s.boxes[b.record.Spec.ID] = b; s.mu.Unlock() }
func (s *supervisor) known(ref string) *box    { s.mu.Lock(); defer s.mu.Unlock(); return s.boxes[ref] }

// forget removes a box from the boxes of this supervisor.
func (s *supervisor) forget(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[ref]; b != nil {
		b.dropLeaseLocked()
	}
	delete(s.boxes, ref)
}

// earlierDir returns the directory in which earlier versions had gVisor store its
// state.
func (s *supervisor) earlierDir() string { return filepath.Join(s.dir, "runsc") }

// hold adds a process to the children of a box that is being made.
func (s *supervisor) hold(b *box, pid int) error {
	c, err := process.Hold(pid)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.children = append(b.children, c)
	return nil
}

// made reports whether this supervisor made a box and has completed it.
func (s *supervisor) made(b *box) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.own && b.ready
}

// keepFresh sends the machine's settings for name resolution to the networks of
// this supervisor's boxes, from the first network on until the supervisor ends.
func (s *supervisor) keepFresh() {
	s.fresh.Do(func() {
		go network.KeepFresh(nil, func() (dirs []string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, b := range s.boxes {
				if b.ready && b.record.Linked {
					dirs = append(dirs, b.dir)
				}
			}
			return dirs
		})
	})
}

package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// find returns a live box. It loads the box if another supervisor made it.
func (s *supervisor) find(ref string) (*box, error) {
	if b := s.known(ref); b != nil {
		s.mu.Lock()
		ready := b.ready
		s.mu.Unlock()
		if ready {
			return b, s.refresh(b)
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "box is still being made")
	}
	b, err := s.load(ref)
	if err != nil {
		return nil, err
	}
	if !b.alive() && !b.saved() {
		return nil, fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.boxes[ref]; other != nil {
		return other, nil
	}
	s.boxes[ref] = b
	if b.record.Linked {
		s.keepFresh()
	}
	return b, nil
}

// watch enforces the memory limit of a box that another supervisor made; files
// contains its memory file. The other supervisor may enforce it at the same time.
func (s *supervisor) watch(ref string, files []*os.File) error {
	b, err := s.find(ref)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return sandbox.Errorf(sandbox.Invalid, "no memory file")
	}
	fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.watch != nil {
		return unix.Close(fd)
	}
	for _, pid := range process.OfBox(ref) {
		if b.record.Linked && pid != b.sentry() {
			b.network = pid
		}
	}
	b.startWatch(os.NewFile(uintptr(fd), memwatch.FileName))
	return nil
}

// list returns the references of all boxes that have a directory.
func (s *supervisor) list() ([]string, error) {
	refs := map[string]bool{}
	entries, err := os.ReadDir(s.boxesDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	for _, e := range entries {
		if sandbox.ValidID(e.Name()) {
			refs[e.Name()] = true
		}
	}
	var out []string
	for ref := range refs {
		out = append(out, ref)
	}
	slices.Sort(out)
	return out, nil
}

// load returns a box that another supervisor made. A box whose supervisor died
// while making it has no sentry.
func (s *supervisor) load(ref string) (*box, error) {
	b := &box{dir: s.boxDir(ref), null: s.null}
	data, err := os.ReadFile(filepath.Join(b.dir, recordFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: nothing is known of it", driver.ErrGone)
		}
		return nil, err
	}
	// The file was renamed atomically, so it is damaged only if the machine crashed
	// soon after, which also ended the box. A record of another box is refused,
	// because destroy would kill that box's processes.
	if err := json.Unmarshal(data, &b.record); err != nil {
		return nil, fmt.Errorf("%w: its record is damaged: %w", driver.ErrGone, err)
	}
	if b.record.Spec.ID != ref {
		return nil, fmt.Errorf("%w: its record is of a box %q", driver.ErrGone, b.record.Spec.ID)
	}
	kernel, err := sentry.Kept(b.dir, s.earlierDir(), ref)
	if err != nil {
		return nil, err
	}
	b.kernel.Store(kernel)
	b.earlierKills.Store(int64(b.record.MemoryKills))
	if err := s.finishSave(b); err != nil {
		return nil, err
	}
	if b.saved() && b.sentry() == 0 {
		b.record.Cgroup = nil // a server may have many boxes on the disk
	}
	b.ready = true
	return b, nil
}

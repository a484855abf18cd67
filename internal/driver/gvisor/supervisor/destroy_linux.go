package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// destroy ends a box in any state and removes all of it. It returns what the box has
// used, or nil if nothing counted it.
func (s *supervisor) destroy(ref string) (*driver.Usage, error) {
	b := s.known(ref)
	if b == nil {
		var err error
		if b, err = s.load(ref); errors.Is(err, driver.ErrGone) {
			// Its supervisor may have died before it wrote a record.
			b = &box{record: message.Record{Spec: driver.Spec{ID: ref}}, dir: s.boxDir(ref)}
		} else if err != nil {
			return nil, err
		}
	}
	// Kill before locking: the holder of the lock may be waiting for a sentry that
	// does not answer. The kill ends that wait.
	if err := s.kill(b); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, nil
	}
	if b.record.Cgroup == nil && s.groups != nil {
		b.record.Cgroup = s.groups.Of(ref) // a supervisor may have died before it removed that of a saved box
	}
	used, err := s.endLocked(b)
	if err == nil {
		b.gone = true
		s.forget(ref)
	}
	return used, err
}

// endLocked kills the processes of a box and removes its files. It returns what the box
// has used. The caller holds b.mu.
func (s *supervisor) endLocked(b *box) (used *driver.Usage, err error) {
	count := func() (err error) {
		used, err = b.usageLocked()
		return err
	}
	if err := s.endProcessesLocked(b, count); err != nil {
		return used, err // the record stays for the next try
	}
	if used != nil {
		used.Memory = 0
	}
	return used, state.RemoveAll(b.dir, b.stateDir())
}

// endProcessesLocked kills the processes of a box, and removes what belongs to them
// outside of its directory. Between the two it calls count, because the control group
// has then counted all of the CPU time. The caller holds b.mu.
func (s *supervisor) endProcessesLocked(b *box, count func() error) error {
	if b.watch != nil {
		b.watch.Stop()
	}
	var errs []error
	if err := s.kill(b); err != nil {
		errs = append(errs, err)
	}
	if err := s.forgetKernel(b); err != nil {
		errs = append(errs, err)
	}
	if err := count(); err != nil {
		log.Warningf("count the end of %s: %v", b.record.Spec.ID, err)
	}
	if err := b.record.Cgroup.Remove(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// kill kills the processes of a box and returns when there are none.
//
// If this supervisor completed the box, its processes are this process's children.
// Nothing starts other processes for a ready box. The sentry's own children are in
// a PID namespace, which the host kernel empties before it reports the sentry's
// end. If the box is incomplete, or another supervisor made it, its processes are not
// all known. Then kill examines every process of the machine.
func (s *supervisor) kill(b *box) error {
	all := s.made(b) // first, because the list of children is final only after that
	s.mu.Lock()
	children := slices.Clone(b.children)
	s.mu.Unlock()
	if err := process.KillChildren(children); err == nil && all {
		return nil
	}
	return process.KillBox(b.record.Spec.ID)
}

// forgetKernel removes the files of an ended sentry outside of the box's directory.
func (s *supervisor) forgetKernel(b *box) error {
	var left []string
	if k := b.kernel.Load(); k != nil {
		left = append(left, k.ControlSocketPath)
	}
	if !s.made(b) {
		// The socket of a sentry that died during its start is not recorded. gVisor
		// makes it elsewhere if there is no room in its own directory. Another
		// user's file may have that name, because it is not secret, so errors are
		// ignored.
		id := b.record.Spec.ID
		for _, dir := range []string{"/var/run", "/run", "/tmp"} {
			_ = os.Remove(filepath.Join(dir, "runsc-"+id+".sock"))
		}
		earlier, err := filepath.Glob(filepath.Join(s.earlierDir(), "*"+id+"*"))
		if err != nil {
			return err
		}
		left = append(left, earlier...)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

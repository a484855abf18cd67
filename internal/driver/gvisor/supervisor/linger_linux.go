package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// holderFile is in the directory of a box with a lease. It contains the name of the
// supervisor whose driver set the lease last.
const holderFile = "holder"

// A lease is a box's lease in the supervisor whose driver set it.
type lease struct {
	driver.Lease
	// dir is the directory of the box. It is the same directory after the state
	// directory was moved, and an empty one after it was removed.
	dir *os.Root

	// For a lingering supervisor: when it looks next for another server, whether it
	// has found one, and when that one had left.
	look   time.Time
	others bool
	left   time.Time
}

// lease sets the lease of a box, and makes this supervisor's driver its holder.
func (s *supervisor) lease(b *box, l driver.Lease) error {
	if !b.record.Spec.Detached {
		return sandbox.Errorf(sandbox.Invalid, "an attached box has no lease")
	}
	b.leasing.Lock()
	defer b.leasing.Unlock()
	destroyed := fmt.Errorf("%w: it was destroyed", driver.ErrGone)
	s.mu.Lock()
	held, known := b.lease != nil, s.boxes[b.record.Spec.ID] == b
	if held {
		b.lease.Lease = l
	}
	s.mu.Unlock()
	if held {
		return nil
	}
	if !known {
		return destroyed
	}
	// Without mu: a state directory that hangs must not hold requests for other boxes.
	dir, err := os.OpenRoot(b.dir)
	if err != nil {
		return err
	}
	if err := dir.WriteFile(holderFile, []byte(s.name), 0o600); err != nil {
		return errors.Join(err, dir.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.boxes[b.record.Spec.ID] != b {
		return errors.Join(destroyed, dir.Close())
	}
	b.lease = &lease{Lease: l, dir: dir}
	return nil
}

// linger stays after the driver's end while detached boxes need this process: to
// watch their memory, or to end them by their leases. It closes standard error first,
// because the driver takes its end as the end of all other work.
func (s *supervisor) linger() {
	left := time.Now().Round(0) // without the monotonic clock, which stops with the machine
	s.mu.Lock()
	var kept []*box
	for _, b := range s.boxes {
		if (b.watch != nil || b.lease != nil) && !b.saved() { // a saved one needs no process
			kept = append(kept, b)
		}
	}
	s.mu.Unlock()
	if len(kept) == 0 {
		return
	}
	if err := os.WriteFile("/proc/self/comm", []byte(message.LingeringName), 0); err != nil {
		log.Warningf("rename process: %v", err)
	}
	if err := unix.Dup3(int(s.null.Fd()), 2, 0); err != nil {
		return
	}
	debug.FreeOSMemory()
	for {
		kept = slices.DeleteFunc(kept, func(b *box) bool { return !s.keep(b, left) })
		if len(kept) == 0 {
			return
		}
		time.Sleep(lingerLook)
	}
}

const (
	// lingerLook is the interval at which a lingering supervisor checks its boxes.
	lingerLook = time.Second
	// lingerGrace is the interval at which a lingering supervisor looks for another
	// server once a lease is over.
	lingerGrace = 30 * time.Second
)

// keep ends a box if its lease is over. It reports whether a lingering supervisor
// must look at the box again. The driver left at the time left.
func (s *supervisor) keep(b *box, left time.Time) bool {
	l, taken := s.leaseOf(b)
	if !taken && l == nil && b.alive() {
		return true // for its memory
	}
	if taken || l == nil {
		if b.watch != nil {
			b.watch.Stop() // the other supervisor has its own
		}
		return false
	}
	// The record is missing if the state directory was removed: no server can take the
	// box over.
	_, err := l.dir.Lstat(recordFile)
	removed := errors.Is(err, fs.ErrNotExist)
	if !removed && !l.over(left, time.Now().Round(0), s.othersServe) {
		return true
	}
	_, err = s.destroy(b.record.Spec.ID)
	return err != nil // then try again
}

// over reports whether the lease of a box is over at the time now, whose driver left
// at the time left. While another server is there, it is not: that server may hold
// the box without a lease, may have moved its end, and ends the box itself. The idle
// time begins again when that server has left. The lease still has its own end.
func (l *lease) over(left, now time.Time, othersServe func() bool) bool {
	if l.left.After(left) {
		left = l.left
	}
	if now.Before(l.After(left)) || now.Before(l.look) {
		return false
	}
	if othersServe() {
		l.others, l.look = true, now.Add(lingerGrace)
		return false
	}
	if l.others {
		l.others, l.left = false, now
		return !now.Before(l.After(now))
	}
	return true
}

// leaseOf returns the lease of a box, or nil. It drops the lease if another supervisor
// has become the holder, and reports that.
func (s *supervisor) leaseOf(b *box) (l *lease, taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.lease == nil {
		return nil, false
	}
	name, err := b.lease.dir.ReadFile(holderFile)
	if err == nil && string(name) != s.name {
		b.dropLeaseLocked()
		return nil, true
	}
	return b.lease, false
}

// dropLeaseLocked frees the lease of a box, if it has one. The caller holds the
// supervisor's mu.
func (b *box) dropLeaseLocked() {
	if b.lease != nil {
		b.lease.dir.Close()
		b.lease = nil
	}
}

// othersServe reports whether another supervisor of this state directory has a
// driver. A driver of an earlier version takes boxes over without a lease, and its
// server ends them itself. Only processes of this user count.
func (s *supervisor) othersServe() bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		f := strings.SplitN(string(args), "\x00", 3)
		if len(f) < 3 || f[0] != message.SupervisorName && f[0] != message.EarlierSupervisorName || f[1] != filepath.Dir(s.dir) {
			continue
		}
		status, err := process.Status(pid)
		if err == nil && status["Name"] != message.LingeringName && status["Uid"] == strconv.Itoa(os.Geteuid()) {
			return true
		}
	}
	return false
}

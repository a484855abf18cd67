package memwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
)

// A Watch enforces a box's memory limit without a control group. The memory of a
// box's programs is one file of the sentry, without a name; its size on disk is
// their use. Data that the sentry keeps for programs (full pipes, socket buffers,
// open files) is in the sentry's own memory. It counts as far as it exceeds
// allowance.SentryMemory. The memory of the box's connections is in the network
// process. It counts as far as it exceeds allowance.NetworkMemory. If the sum
// exceeds the limit, the watch kills the box.
//
// The watch reads the sum more often the nearer it is to the limit. Memory that is
// filled at [fillRate] can therefore exceed the limit by at most fillRate times
// [shortestLook].
type Watch struct {
	file    *os.File
	limit   int64
	sentry  int
	network int    // the process ID of the box's network, 0 if there is none
	mark    string // a file that records the kill, for incidents
	stopped chan struct{}
	once    sync.Once // closes stopped
	done    chan struct{}
}

const (
	fillRate     = 4 << 30 // bytes a second; zeroing memory is not faster
	shortestLook = 2 * time.Millisecond
	longestLook  = 250 * time.Millisecond
)

// FileName is gVisor's name of that file.
const FileName = "runsc-memory"

// Start begins to watch a sentry's memory file, which the watch then owns.
// The caller stops the watch. Before the watch kills the box, it makes the file
// mark.
func Start(file *os.File, sentry, network int, limit int64, mark string) *Watch {
	w := &Watch{
		file:    file,
		limit:   limit,
		sentry:  sentry,
		network: network,
		mark:    mark,
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go w.run()
	return w
}

// Open opens the file with the memory of a sentry's programs. The caller
// closes it.
func Open(sentry int) (*os.File, error) {
	dir := filepath.Join("/proc", strconv.Itoa(sentry), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find memory of box: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil && strings.Contains(target, FileName) {
			return os.Open(path)
		}
	}
	return nil, fmt.Errorf("find memory of box: process %d has no file %q", sentry, FileName)
}

func (w *Watch) run() {
	defer close(w.done)
	defer w.file.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.stopped:
			return
		case <-timer.C:
		}
		used, err := w.used()
		if err != nil {
			return // the sentry has ended
		}
		if used > w.limit {
			// A failure to write the mark must not prevent the kill.
			_ = os.WriteFile(w.mark, nil, 0o600)
			if fd, err := unix.PidfdOpen(w.sentry, 0); err == nil {
				_ = process.SendAsOwner(w.sentry, fd, unix.SIGKILL)
				unix.Close(fd)
			}
			return
		}
		timer.Reset(nextLook(w.limit - used))
	}
}

// nextLook returns the time until the next reading, if room bytes remain: the
// shortest time in which they can be filled.
func nextLook(room int64) time.Duration {
	lasts := time.Duration(float64(room) / fillRate * float64(time.Second))
	return min(max(lasts, shortestLook), longestLook)
}

// Used returns how much memory the box's programs use, in bytes. It is an
// error after Stop.
func (w *Watch) Used() (int64, error) { return w.used() }

// used implements Used.
func (w *Watch) used() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.file.Fd()), &st); err != nil {
		return 0, err
	}
	own, err := anonymousMemory(w.sentry)
	if err != nil {
		return 0, err // the sentry has ended
	}
	used := st.Blocks*512 + max(0, own-allowance.SentryMemory)
	if w.network > 0 {
		// The network may end before the box.
		if n, err := anonymousMemory(w.network); err == nil {
			used += max(0, n-allowance.NetworkMemory)
		}
	}
	return used, nil
}

// anonymousMemory returns the memory of a process that belongs to no file, in
// bytes.
func anonymousMemory(pid int) (int64, error) {
	status, err := process.Status(pid)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(status["RssAnon"], 10, 64)
	return kib << 10, err
}

// Running reports whether the limit is being enforced.
func (w *Watch) Running() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// Stop ends the watch and waits for its end. It is idempotent, and safe for
// concurrent use.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	<-w.done
}

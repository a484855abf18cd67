package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A memoryWatch keeps a box's memory limit where no control group can: all the
// memory of a box's programs is one file of the sentry's, without a name, and
// its size on disk, as it were, is what they use. What they have the sentry
// keep for them (full pipes, socket buffers, open files) is in the sentry's own
// memory, beyond what it takes for itself, and so is what the box's connections
// take in the process of its network. When all together exceed the limit the watch
// kills the box.
//
// It looks more often the nearer the limit is: soon enough that memory, filled
// at [fillRate], cannot have passed the limit by more than fillRate times
// [shortestLook].
type memoryWatch struct {
	file    *os.File
	limit   int64
	sentry  int
	network int    // the process of the box's network, 0 if there is none
	mark    string // a file made when it kills, for whoever asks why
	stopped chan struct{}
	done    chan struct{}
}

// sentryShare is what the sentry may take for itself, in bytes: some 10 MiB at
// rest, and more while it collects its garbage.
const sentryShare = 48 << 20

const (
	fillRate     = 4 << 30 // bytes a second; zeroing memory is not faster
	shortestLook = 2 * time.Millisecond
	longestLook  = 250 * time.Millisecond
)

// memoryFileName is what gVisor calls that file.
const memoryFileName = "runsc-memory"

// watchMemory begins to watch a sentry's memory file, which becomes the watch's;
// the caller stops it. It makes the file mark before it kills.
func watchMemory(file *os.File, sentry, network int, limit int64, mark string) *memoryWatch {
	w := &memoryWatch{
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

// openMemoryFile opens the file that holds the memory of a sentry's programs.
func openMemoryFile(sentry int) (*os.File, error) {
	dir := filepath.Join("/proc", strconv.Itoa(sentry), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find memory of box: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil && strings.Contains(target, memoryFileName) {
			return os.Open(path)
		}
	}
	return nil, fmt.Errorf("find memory of box: process %d has no file %q", sentry, memoryFileName)
}

func (w *memoryWatch) run() {
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
			// Not knowing why is no reason to let it live.
			_ = os.WriteFile(w.mark, nil, 0o600)
			if fd, err := unix.PidfdOpen(w.sentry, 0); err == nil {
				_ = sendAsOwner(w.sentry, fd, unix.SIGKILL)
				unix.Close(fd)
			}
			return
		}
		timer.Reset(nextLook(w.limit - used))
	}
}

// nextLook returns how long room bytes last at the least.
func nextLook(room int64) time.Duration {
	lasts := time.Duration(float64(room) / fillRate * float64(time.Second))
	return min(max(lasts, shortestLook), longestLook)
}

// used returns how much memory the box's programs use, in bytes.
func (w *memoryWatch) used() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.file.Fd()), &st); err != nil {
		return 0, err
	}
	own, err := anonymousMemory(w.sentry)
	if err != nil {
		return 0, err // it has ended
	}
	used := st.Blocks*512 + max(0, own-sentryShare)
	if w.network > 0 {
		// Its end is not the box's.
		if n, err := anonymousMemory(w.network); err == nil {
			used += max(0, n-networkMemory)
		}
	}
	return used, nil
}

// anonymousMemory returns the memory of a process that is in no file, in bytes.
func anonymousMemory(pid int) (int64, error) {
	status, err := processStatus(pid)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(status["RssAnon"], 10, 64)
	return kib << 10, err
}

// running reports whether the limit is being kept.
func (w *memoryWatch) running() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// stop ends the watch. It may be called again.
func (w *memoryWatch) stop() {
	select {
	case <-w.stopped:
	default:
		close(w.stopped)
	}
	<-w.done
}

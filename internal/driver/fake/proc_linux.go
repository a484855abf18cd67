package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// The files of a box.
const (
	lockFile      = "lock" // the supervisor holds a lock on it while it lives
	pidFile       = "pid"  // the supervisor's process ID
	specFile      = "spec"
	workDir       = "work"
	guestSocket   = "guest"
	controlSocket = "control" // made last
)

// A process identifies a process of this machine. The host kernel may reuse a
// process ID, but not with the same start time.
type process struct {
	pid   int
	start uint64
}

// wait waits until the process has ended. Its parent may not have read its exit
// status yet.
func (p process) wait(ctx context.Context) error {
	for pause := time.Millisecond / 4; ; pause = min(2*pause, 20*time.Millisecond) {
		if st, ok := readStat(p.pid); !ok || st.start != p.start || st.dead() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// signal sends sig to the process, and does nothing if it has ended.
func (p process) signal(sig unix.Signal) {
	if l, ok := hold(p.pid); ok {
		if l.proc == p {
			unix.PidfdSendSignal(l.fd, sig, nil, 0)
		}
		l.close()
	}
}

// A stat holds the values that the host kernel reports about a process.
type stat struct {
	process
	ppid  int
	state byte
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// readStat reads the state of a process; ok is false if there is no such process.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The program's name, in parentheses, may contain any characters.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 20 {
		return stat{}, false
	}
	s.pid, s.state = pid, f[0][0]
	s.ppid, _ = strconv.Atoi(f[1])
	s.start, err = strconv.ParseUint(f[19], 10, 64)
	return s, err == nil
}

// below returns the live descendants of a process, parents first.
func below(root int) ([]stat, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]stat)
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil {
			if s, ok := readStat(pid); ok {
				children[s.ppid] = append(children[s.ppid], s)
			}
		}
	}
	var list []stat
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, s := range children[queue[0]] {
			queue = append(queue, s.pid)
			if !s.dead() {
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// A liveSupervisor holds a file descriptor of a supervisor that was alive when it
// was found.
type liveSupervisor struct {
	proc process
	fd   int
}

func (l *liveSupervisor) close() { unix.Close(l.fd) }

// findSupervisor returns the supervisor of the box in dir. The error wraps ErrGone
// if there is none. The caller closes the result.
func findSupervisor(dir string) (*liveSupervisor, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if !locked(dir) {
			return nil, driver.ErrGone
		}
		text, err := os.ReadFile(filepath.Join(dir, pidFile))
		pid, _ := strconv.Atoi(string(text))
		if err == nil && pid > 1 {
			if l, ok := hold(pid); ok {
				// The supervisor holds the lock. If the lock is still held, this
				// process is the supervisor.
				if locked(dir) {
					return l, nil
				}
				l.close()
			}
			continue
		}
		// The lock is held, but the supervisor has not written its process ID yet.
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the supervisor does not begin: %w", err)
		}
	}
}

func hold(pid int) (*liveSupervisor, bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, false
	}
	s, ok := readStat(pid)
	if !ok {
		unix.Close(fd)
		return nil, false
	}
	return &liveSupervisor{s.process, fd}, true
}

// locked reports whether the box in dir has a supervisor.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// end asks the supervisor to end its box, and waits until the supervisor has ended.
func (l *liveSupervisor) end(ctx context.Context) error {
	if err := unix.PidfdSendSignal(l.fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return l.proc.wait(ctx)
}

// removeTree removes a directory and its content, including directories that their
// owner may not read or write. No process may use it meanwhile.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return root.Chmod(path, 0o700)
		}
		return nil // RemoveAll reports what cannot be removed
	}); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

package fake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

// roleVariable selects the role of a helper process that begins with Hook. The
// working directory of a helper is the directory of its box.
const (
	roleVariable   = "GLOVEBOX_FAKE_ROLE"
	roleSupervisor = "supervisor"
	roleGuest      = "guest"
)

// readyText is the output of a helper when it is ready.
const readyText = "ready\n"

// Requests to the supervisor at its control socket, one byte each. The answer is
// one byte.
const (
	controlPause     = 'P'
	controlResume    = 'R'
	controlKillGuest = 'G'
)

// Hook runs the program of a helper in the processes that drivers start, and does
// not return there. In other processes it does nothing. TestMain must call it
// first.
func Hook() {
	if os.Args[0] == guest.Program { // a command of a box's guest
		os.Exit(guest.Main(os.Args[1:]))
	}
	role := os.Getenv(roleVariable)
	var err error
	switch role {
	case "":
		return
	case roleSupervisor:
		err = supervise()
	case roleGuest:
		err = serveGuest()
	default:
		err = fmt.Errorf("no such role: %q", role)
	}
	if err != nil {
		// The cause goes to the driver's Stderr.
		fmt.Fprintf(os.Stderr, "fake %s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// cleanEnv returns the environment of helpers. It inherits nothing from the caller.
func cleanEnv(dir string) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + dir,
		// Without this, a program with the race detector takes a second to exit.
		"GORACE=atexit_sleep_ms=0",
	}
}

// A supervisor manages the processes of one box.
type supervisor struct {
	dir   string
	guest int
	stop  sync.Once
	ended chan struct{} // closed when the box is to end

	mu     sync.Mutex // guards paused, and pausing against killing
	paused bool
}

// supervise is the supervisor's program. Standard input is a pipe whose writing end
// the creator holds. Standard output goes to the creator. Descriptor 3 is the lock.
func supervise() error {
	// The guest dies with the thread that started it. The main goroutine's thread
	// lives as long as the process.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	unix.CloseOnExec(3)
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s := &supervisor{dir: dir, ended: make(chan struct{})}
	err = s.begin()
	if err == nil {
		_, err = os.Stdout.WriteString(readyText)
	} else {
		os.Stdout.WriteString(err.Error()) // the creator may be gone already
	}
	os.Stdout.Close()
	if err == nil {
		go s.watchCreator()
		select {
		case <-signals:
		case <-s.ended:
		}
	}
	s.kill()
	return removeTree(s.dir)
}

func (s *supervisor) begin() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if err := atomicfile.Replace(pidFile, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if err := s.startGuest(); err != nil {
		return err
	}
	go s.reap()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: controlSocket, Net: "unix"})
	if err != nil {
		return err
	}
	go s.serveControl(l)
	return nil
}

// startGuest starts the guest and waits until it listens.
func (s *supervisor) startGuest() error {
	ready, said, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{"fake-guest"}, &os.ProcAttr{
		Dir:   s.dir,
		Env:   append(cleanEnv(s.dir), roleVariable+"="+roleGuest),
		Files: []*os.File{null, null, os.Stderr, said},
		// On SIGTERM, the guest also ends its own processes.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},
	})
	said.Close()
	if err != nil {
		return fmt.Errorf("start guest: %w", err)
	}
	s.guest = p.Pid
	if err := p.Release(); err != nil { // reap reads its exit status
		return err
	}
	text, err := io.ReadAll(io.LimitReader(ready, 4096))
	if err != nil {
		return err
	}
	if string(text) != readyText {
		return errors.New("the guest did not begin; what it said went to the driver's Stderr")
	}
	return nil
}

// watchCreator ends the box when the creator ends, unless the creator has detached
// the box.
func (s *supervisor) watchCreator() {
	var what [1]byte
	if n, err := os.Stdin.Read(what[:]); n == 1 && err == nil && what[0] == 'D' {
		return
	}
	s.end()
}

func (s *supervisor) end() { s.stop.Do(func() { close(s.ended) }) }

// reap reads the exit status of every child, and ends the box when the guest ends.
func (s *supervisor) reap() {
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // there are no more children
			s.end()
			return
		case pid == s.guest:
			s.end()
		}
	}
}

// kill kills all descendants of the supervisor, and returns when there are none.
func (s *supervisor) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pause := time.Millisecond / 2; ; pause = min(2*pause, 20*time.Millisecond) {
		live, err := below(os.Getpid())
		if err == nil && len(live) == 0 {
			return
		}
		// SIGSTOP first keeps the processes from starting others.
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			for _, p := range live {
				p.signal(sig)
			}
		}
		time.Sleep(pause)
	}
}

// serveControl answers the driver's requests.
func (s *supervisor) serveControl(l *net.UnixListener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var what [1]byte
			if _, err := conn.Read(what[:]); err != nil {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			switch what[0] {
			case controlPause:
				s.pause()
			case controlResume:
				s.resume()
			case controlKillGuest:
				unix.Kill(s.guest, unix.SIGKILL)
			}
			conn.Write(what[:])
		}()
	}
}

// pause stops all processes. A process may start others before it is stopped, so
// pause repeats until no process runs. A process in vfork waits until its child has
// executed another program. It does not stop, but it cannot run either while the
// child is stopped.
func (s *supervisor) pause() {
	if s.paused {
		return
	}
	s.paused = true
	for fresh := true; fresh; {
		fresh = false
		live, err := below(os.Getpid())
		if err != nil {
			return
		}
		waits := map[int]bool{} // processes with a stopped child
		for _, p := range live {
			waits[p.ppid] = waits[p.ppid] || p.state == 'T'
		}
		for _, p := range live {
			if p.state != 'T' && !(p.state == 'D' && waits[p.pid]) {
				fresh = true
				p.signal(unix.SIGSTOP)
			}
		}
		time.Sleep(time.Millisecond / 2)
	}
}

func (s *supervisor) resume() {
	if !s.paused {
		return
	}
	s.paused = false
	live, err := below(os.Getpid())
	if err != nil {
		return
	}
	// Children first, so that no process sees a stopped child.
	for i := len(live) - 1; i >= 0; i-- {
		live[i].signal(unix.SIGCONT)
	}
}

// workDirOf returns the working directory of programs of the box in dir: its
// workspace, or else a directory of the box.
func workDirOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return "", err
	}
	var spec driver.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("read spec: %w", err)
	}
	return cmp.Or(spec.Workspace, filepath.Join(dir, workDir)), nil
}

// serveGuest is the guest's program. It writes readyText to descriptor 3.
func serveGuest() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	unix.CloseOnExec(3)
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	work, err := workDirOf(dir)
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: guestSocket, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chdir(work); err != nil {
		return err
	}
	g, err := guest.New(guest.Config{AsSelf: true, WorkDir: work})
	if err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	if _, err := ready.WriteString(readyText); err != nil {
		return err
	}
	ready.Close()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	select {
	case err = <-served:
	case <-signals:
	}
	return errors.Join(err, g.Close())
}

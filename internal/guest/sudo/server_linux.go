package sudo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

const (
	// Name is the command's name, and of the link to the guest's program.
	Name = "sudo"
	// DefaultSocket is the path of the socket.
	DefaultSocket = "/run/glovebox-sudo.sock"
)

const (
	// maxSessions bounds the commands at one time, and maxReading those whose
	// request the guest reads.
	maxSessions = 256
	maxReading  = 8
	// maxAsking bounds the time for a request, and maxTelling for an answer.
	maxAsking  = 10 * time.Second
	maxTelling = 10 * time.Second
	// passed is the number of descriptors with a request: the standard streams and
	// the directory.
	passed = 4
)

// Config is the configuration of a server.
type Config struct {
	// Dir is the directory in which Enable makes the command. If it is empty, there
	// is none.
	Dir string
	// Socket is the path of the socket.
	Socket string
}

// A Server starts programs for the command sudo. Its methods are safe for concurrent
// use.
type Server struct {
	cfg       Config
	accounts  *account.Accounts
	processes *process.Set
	sessions  chan struct{} // has a value for each session
	reading   chan struct{}

	mu       sync.Mutex
	listener *net.UnixListener // nil before Enable
	over     bool              // nothing is left to enable
}

// New returns a server that does not serve yet.
func New(cfg Config, accounts *account.Accounts, processes *process.Set) *Server {
	return &Server{
		cfg: cfg, accounts: accounts, processes: processes,
		sessions: make(chan struct{}, maxSessions), reading: make(chan struct{}, maxReading),
	}
}

// Enable makes the command and serves it, unless that was done before. A file of the
// image with the command's path stays, and then there is no other command. The same
// is true where the directory cannot be written.
func (s *Server) Enable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.cfg.Dir == "" {
		return
	}
	s.over = true
	if l, err := s.install(); err == nil {
		s.listener = l
		go s.serve(l)
	}
}

// install makes the socket and the command.
func (s *Server) install() (*net.UnixListener, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	link := filepath.Join(s.cfg.Dir, Name)
	if err := os.Symlink(program, link); err != nil {
		// An image that was made of a sandbox has the link already.
		if target, rerr := os.Readlink(link); rerr != nil || target != program {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.cfg.Socket, Net: "unix"})
	if err == nil {
		// Every program may connect.
		if err = os.Chmod(s.cfg.Socket, 0o666); err == nil {
			return l, nil
		}
		l.Close()
	}
	return nil, errors.Join(err, os.Remove(link))
}

// Close ends the service. Sessions end with their programs.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.listener != nil {
		s.listener.Close()
	}
}

func (s *Server) serve(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // until a resource is freed
			continue
		}
		select {
		case s.sessions <- struct{}{}:
			go func() {
				defer func() { <-s.sessions }()
				defer conn.Close()
				s.session(conn)
			}()
		default:
			go refuse(conn)
		}
	}
}

// refuse ends a connection that is one too many.
func refuse(conn *net.UnixConn) {
	defer conn.Close()
	tell(conn, &answer{Error: fmt.Sprintf("%d commands run by sudo already", maxSessions)})
}

// tell sends an answer. If the command does not read it, its end is all that the
// command gets.
func tell(conn *net.UnixConn, a *answer) {
	_ = conn.SetWriteDeadline(time.Now().Add(maxTelling))
	_ = send(conn, a, maxAnswer)
}

// session serves one command.
func (s *Server) session(conn *net.UnixConn) {
	child, text, err := s.begin(conn)
	switch {
	case err != nil:
		tell(conn, &answer{Error: err.Error()})
		return
	case child == nil:
		tell(conn, &answer{Text: text})
		return
	}
	tell(conn, &answer{Started: true})
	go s.pass(conn, child)
	<-child.Done()
	end := new(answer)
	if status := child.Status(); status.Signaled() {
		end.Signal = int(status.Signal())
	} else {
		end.Status = status.ExitStatus()
	}
	tell(conn, end)
}

// signals are the signals that the command passes on.
var signals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
}

// pass gives a program the signals that arrive for it, and SIGWINCH after its terminal's
// size changed. If the command ends before its program, pass kills the program.
func (s *Server) pass(conn *net.UnixConn, child *process.Child) {
	var sig [1]byte
	for {
		if _, err := io.ReadFull(conn, sig[:]); err != nil {
			_ = child.SignalGroup(unix.SIGKILL) // it may have ended
			return
		}
		if unix.Signal(sig[0]) == unix.SIGWINCH {
			s.processes.TellSize(child)
		}
		for _, known := range signals {
			if known == unix.Signal(sig[0]) {
				_ = child.SignalGroup(unix.Signal(sig[0]))
			}
		}
	}
}

// begin reads a request and starts its program. Without a program, it returns a
// text.
func (s *Server) begin(conn *net.UnixConn) (*process.Child, string, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	_ = conn.SetDeadline(time.Now().Add(maxAsking))
	defer func() { _ = conn.SetDeadline(time.Time{}) }()
	who, fds, err := meet(conn)
	d := new(process.Descriptors)
	defer d.CloseAll()
	for _, fd := range fds[:min(len(fds), 3)] {
		d.AddChild(fd)
	}
	for _, fd := range fds[min(len(fds), 3):] {
		defer unix.Close(fd)
	}
	if err != nil {
		return nil, "", err
	}
	var req request
	if err := receive(conn, &req, maxRequest); err != nil {
		return nil, "", fmt.Errorf("request: %w", err)
	}
	o, err := s.order(&req, who)
	if err != nil {
		return nil, "", err
	}
	if req.List {
		return nil, o.rules(), nil
	}
	caller, err := who.process()
	if err != nil {
		return nil, "", err
	}
	o.Caller = caller
	if !req.Login {
		o.Dir = fds[3]
	}
	c, err := s.processes.Delegate(&o.Delegation, d)
	return c, "", err
}

// meet greets the command, and receives its identity and its descriptors. The caller
// closes those, also after an error.
func meet(conn *net.UnixConn) (*peer, []int, error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var set error
	err = rc.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err := errors.Join(err, set); err != nil {
		return nil, nil, err
	}
	// The OS kernel adds an identity to data that is sent from now on. So the command
	// waits for this byte.
	if _, err := conn.Write([]byte{0}); err != nil {
		return nil, nil, err
	}
	var first [1]byte
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4*passed))
	n, oobn, flags, _, err := conn.ReadMsgUnix(first[:], oob)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	var who *peer
	var fds []int
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			who = &peer{pid: int(cred.Pid), uid: cred.Uid, gid: cred.Gid}
		}
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if n != 1 || who == nil || len(fds) != passed || flags&unix.MSG_CTRUNC != 0 {
		return nil, fds, fmt.Errorf("the guest needs %d descriptors, and received %d or more", passed, len(fds))
	}
	return who, fds, nil
}

// A peer is the process at the other end of a connection, by its OS kernel's word.
type peer struct {
	pid      int // of a thread, in gVisor
	uid, gid uint32
}

// process returns the process of a peer. Its pid may belong to another process by
// now, if the peer has ended; that is a process of the same sandbox, in whose name
// the program then runs.
func (p *peer) process() (procfs.Process, error) {
	pid := p.pid
	var buf [4096]byte
	status := buf[:procfs.ReadSmall("/proc/"+strconv.Itoa(pid)+"/status", buf[:])]
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
				pid = n
			}
		}
	}
	found, ok := procfs.Read(pid)
	if !ok || found.Dead() {
		return procfs.Process{}, process.ErrCallerGone
	}
	return found, nil
}

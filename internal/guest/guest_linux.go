package guest

import (
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Config is the configuration of a guest.
type Config struct {
	// MaxProcesses is the limit on processes and threads that the user's
	// programs inherit. The guest also uses it to find out why a process ended.
	// 0 is no limit.
	MaxProcesses int
	// CPUs is how many processors the user's programs may use. 0 is as many as
	// they see. The variable OMP_NUM_THREADS passes the number on to programs
	// that share work among threads.
	CPUs float64
	// AsSelf runs everything as the guest's own user, whichever user a request
	// names. It is for a guest that is not root, or that must not act as other
	// users.
	AsSelf bool
	// WorkDir, if not empty, is the directory in which programs start, and their
	// HOME for every user. It is for a guest that shares the file system of its
	// host.
	WorkDir string
	// Threads is how many threads the guest makes at its start. It is for a
	// guest that shares a limit on processes and threads with the user's
	// programs.
	Threads int
	// Env are variables of the image, as NAME=value, that every program gets.
	// The guest's HOME, USER, LOGNAME and SHELL take precedence over them.
	Env []string
	// ImageUser is the user that the image names for programs: a name or a
	// number, or user:group. The account "user" is then this one, unless it is
	// root.
	ImageUser string
	// ImageDir is the directory in which the image has programs start.
	ImageDir string
	// Workspaces, if not nil, serves the workspaces that this guest keeps. It is
	// for a guest that runs no programs.
	Workspaces http.Handler
}

const (
	// maxStreams bounds the concurrent calls on one connection.
	maxStreams = 2000
	// uploadWindow bounds the buffered bytes of one upload, and uploadsWindow
	// those of all uploads on a connection. A program that does not read the
	// data sent to its port must not block other calls.
	uploadWindow  = 1 << 20
	uploadsWindow = (guestapi.MaxPortConns + 2) * uploadWindow
	frameSize     = 256 << 10
)

// A Guest serves the protocol of package guestapi. Its methods are safe for
// concurrent use.
type Guest struct {
	cfg      Config
	pid      int
	children *reaper
	sigs     chan os.Signal
	markers  *markers
	accounts *account.Accounts
	procs    *table
	watches  *watches
	epoller  *epoller
	contexts *contexts
	marked   markedTree
	meter    meter
	server   *http.Server
	conns    *connQueue
	shrinks  chan struct{} // has a value while a preview process runs

	// oomScore is the OOM score of children, ownScore the guest's. Both are
	// empty if the scores are the same. They are written to oomFile.
	oomScore, ownScore string
	oomFile            int

	mu sync.Mutex
	// The latest counts of OOM kills and of refused forks; guarded by mu.
	oom, refused int
}

// New makes the process a guest: from now on it adopts orphans and reaps every
// child. The caller ends the guest with Close. New fails if the process is not
// root and cfg.AsSelf is not set, or if a system call fails.
func New(cfg Config) (*Guest, error) {
	if !cfg.AsSelf && os.Geteuid() != 0 {
		return nil, errors.New("the guest is not root: it can run programs only as itself, which must be asked for")
	}
	g := &Guest{
		cfg:      cfg,
		pid:      os.Getpid(),
		children: newReaper(),
		sigs:     make(chan os.Signal, 1),
		conns:    newConnQueue(),
		shrinks:  make(chan struct{}, 1),
		meter:    meter{at: time.Now()},
	}
	var err error
	if g.markers, err = newMarkers(); err != nil {
		return nil, err
	}
	if g.epoller, err = newEpoller(); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	g.accounts = account.New(account.Config{AsSelf: cfg.AsSelf, WorkDir: cfg.WorkDir, ImageUser: cfg.ImageUser})
	g.procs = newTable()
	g.watches = newWatches()
	g.contexts = &contexts{g: g, byID: make(map[string]*evaluator), byTag: make(map[string]*run)}
	if g.pid != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, os.NewSyscallError("prctl", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		// No program can trace the guest then. Programs of sandbox-root cannot
		// either, as they lack CAP_SYS_PTRACE: see beforeFork.
		return nil, os.NewSyscallError("prctl", err)
	}
	if err := g.limit(); err != nil {
		return nil, err
	}
	g.protect()
	g.oom, g.refused = procfs.MemoryKills(), procfs.ForkRefusals()
	g.readyThreads()
	signal.Notify(g.sigs, unix.SIGCHLD)
	go g.children.run(g.sigs)

	g.server = &http.Server{
		Handler:        g.handler(),
		Protocols:      new(http.Protocols),
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       log.New(io.Discard, "", 0),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              frameSize,
			MaxReceiveBufferPerConnection: uploadsWindow,
			MaxReceiveBufferPerStream:     uploadWindow,
		},
	}
	g.server.Protocols.SetHTTP1(true)
	g.server.Protocols.SetUnencryptedHTTP2(true)
	go g.server.Serve(g.conns)
	return g, nil
}

// limit sets the limit on processes, which children inherit. The guest's own
// capabilities exempt it from the limit.
func (g *Guest) limit() error {
	n := uint64(g.cfg.MaxProcesses)
	if n == 0 {
		return nil
	}
	lim := unix.Rlimit{Cur: n, Max: n}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lim); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return nil
}

// readyThreads makes the guest's threads in advance. Threads of the Go runtime
// do not end, so the user's programs cannot use up the guest's share of the
// limit.
func (g *Guest) readyThreads() {
	var up sync.WaitGroup
	all := make(chan struct{})
	for range g.cfg.Threads {
		up.Add(1)
		go func() {
			runtime.LockOSThread() // one thread for each goroutine
			defer runtime.UnlockOSThread()
			up.Done()
			<-all
		}()
	}
	up.Wait()
	close(all)
}

// protect shields the guest from debuggers and from the OOM killer. It does as
// much as the OS kernel permits; the rest is left to the sandbox's isolation.
func (g *Guest) protect() {
	unix.Umask(0o022)
	if os.Geteuid() == 0 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	var buf [16]byte
	n := procfs.ReadSmall(oomScoreFile, buf[:])
	if n == 0 {
		return
	}
	was := strings.TrimSpace(string(buf[:n]))
	// It stays open because each start of a program writes it twice.
	var err error
	if g.oomFile, err = unix.Open(oomScoreFile, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return
	}
	switch {
	case setOOMScore(g.oomFile, ownOOMScore) == nil:
		g.ownScore, g.oomScore = ownOOMScore, was
	case os.Geteuid() == 0:
		// The guest may not lower its own score, but may raise its children's.
		g.ownScore, g.oomScore = was, childOOMScore
	default:
		unix.Close(g.oomFile)
	}
}

// ownOOMScore makes the guest the last victim of the OOM killer, but not exempt.
// A child that a fork bomb starts between two writes would inherit an exemption.
const (
	ownOOMScore   = "-999"
	childOOMScore = "500"
	oomScoreFile  = "/proc/self/oom_score_adj"
)

// setOOMScore sets the OOM score of this process; file is its open oomScoreFile.
func setOOMScore(file int, score string) error {
	_, err := unix.Pwrite(file, []byte(score), 0)
	return err
}

func (g *Guest) handler() http.Handler {
	mux := http.NewServeMux()
	if g.cfg.Workspaces != nil {
		mux.Handle(workspace.ServedAt+"/", g.cfg.Workspaces)
	}
	mux.HandleFunc(guestapi.PathHealth, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc(guestapi.PathLimits, rpc.Unary(g.limits))
	mux.HandleFunc("GET "+guestapi.PathMetrics, rpc.Plain(g.metrics))
	mux.HandleFunc(guestapi.PathStreams, g.serveStream)
	mux.HandleFunc(guestapi.PathPorts+"{port}", g.servePort)
	mux.HandleFunc(guestapi.ProcStart, rpc.Streaming(g.start))
	mux.HandleFunc(guestapi.ProcConnect, rpc.Streaming(g.connect))
	mux.HandleFunc(guestapi.ProcList, rpc.Unary(g.list))
	mux.HandleFunc(guestapi.ProcUpdate, rpc.Unary(g.update))
	mux.HandleFunc(guestapi.ProcSendInput, rpc.Unary(g.sendInput))
	mux.HandleFunc(guestapi.ProcCloseStdin, rpc.Unary(g.closeStdin))
	mux.HandleFunc(guestapi.ProcSendSignal, rpc.Unary(g.sendSignal))
	mux.HandleFunc(guestapi.FSStat, rpc.Unary(g.stat))
	mux.HandleFunc(guestapi.FSListDir, rpc.Unary(g.listDir))
	mux.HandleFunc(guestapi.FSMakeDir, rpc.Unary(g.makeDir))
	mux.HandleFunc(guestapi.FSMove, rpc.Unary(g.move))
	mux.HandleFunc(guestapi.FSRemove, rpc.Unary(g.remove))
	mux.HandleFunc(guestapi.FSWatchDir, rpc.Streaming(g.watchDir))
	mux.HandleFunc(guestapi.FSCreateWatcher, rpc.Unary(g.createWatcher))
	mux.HandleFunc(guestapi.FSGetWatcherEvents, rpc.Unary(g.getWatcherEvents))
	mux.HandleFunc(guestapi.FSRemoveWatcher, rpc.Unary(g.removeWatcher))
	mux.HandleFunc(guestapi.PathFiles, g.files)
	mux.HandleFunc("GET "+guestapi.PathPreviews, g.previewFile)
	mux.HandleFunc(guestapi.PathLayer, g.layer)
	g.contextRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		rpc.WriteJSON(w, http.StatusNotFound, &guestapi.WireError{
			Code: guestapi.CodeUnimplemented, Message: "no such procedure: " + r.URL.Path,
		})
	})
	return mux
}

// Close ends the connections, and kills every process that the guest started,
// with all descendants.
func (g *Guest) Close() error {
	g.server.Close()
	g.watches.close()
	return g.killAll()
}

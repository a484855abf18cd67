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

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Config says how a guest works.
type Config struct {
	// MaxProcesses is the limit on processes and threads that the user's
	// programs inherit, and that ends are judged by; 0 is none.
	MaxProcesses int
	// CPUs is how many processors the user's programs may use, 0 if that is as
	// many as they see. Those that share work among threads are told by the
	// variable OMP_NUM_THREADS.
	CPUs float64
	// AsSelf runs everything as the guest's own user, whoever is asked for:
	// for a guest that is not root, or must not act as others.
	AsSelf bool
	// WorkDir, if not empty, is where programs start and what they have for
	// HOME, whoever they run as: for a guest that shares its file system.
	WorkDir string
	// Threads is how many threads to have from the beginning, for a guest that
	// shares a limit on processes and threads with the user's programs.
	Threads int
	// Env are variables, as NAME=value, that every program has beside the
	// guest's own: those of the image. The guest's come first for what names
	// the user.
	Env []string
	// ImageUser is who the image says runs programs: a name or a number, or two
	// with a colon between, the second being the group. The user is then that
	// one, unless it is root.
	ImageUser string
	// ImageDir is where the image says programs start.
	ImageDir string
	// Workspaces, if not nil, serves the workspaces that this guest keeps: for
	// one that runs nobody's programs.
	Workspaces http.Handler
}

const (
	// maxStreams bounds the calls at once on one connection.
	maxStreams = 2000
	// uploadWindow bounds what is buffered of one upload, and uploadsWindow of
	// all that come on a connection: a program that does not read what is sent
	// to its port must not hold up other calls.
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
	accounts accounts
	procs    *table
	watches  *watches
	epoller  *epoller
	contexts *contexts
	marked   markedTree
	meter    meter
	server   *http.Server
	conns    *connQueue
	shrinks  chan struct{} // has a value while a picture is being shrunk

	// oomScore is what children have, ownScore what the guest has; both are
	// empty if that is the same. They are written to oomFile.
	oomScore, ownScore string
	oomFile            int

	mu sync.Mutex
	// Processes killed for memory, and forks refused, as last read; guarded by
	// mu.
	oom, refused int
}

// New makes the process a guest: it adopts orphans from now on and reaps every
// child. It fails if it is neither root nor to run all as itself.
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
	g.procs = newTable()
	g.watches = newWatches()
	g.contexts = &contexts{g: g, byID: make(map[string]*evaluator), byTag: make(map[string]*run)}
	if g.pid != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, os.NewSyscallError("prctl", err)
		}
	} else if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		// So that no program traces the guest, not even as sandbox-root, whose
		// programs lack CAP_SYS_PTRACE: see beforeFork.
		return nil, os.NewSyscallError("prctl", err)
	}
	if err := g.limit(); err != nil {
		return nil, err
	}
	g.protect()
	g.oom, g.refused = readOOMKills(), readRefusals()
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

// limit sets the limit on processes, which children inherit. The guest itself
// keeps the capabilities that exempt it.
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

// readyThreads makes the guest's threads, which then wait to be used. They never
// end, so what the user's programs can use up is not the guest's.
func (g *Guest) readyThreads() {
	var up sync.WaitGroup
	all := make(chan struct{})
	for range g.cfg.Threads {
		up.Add(1)
		go func() {
			runtime.LockOSThread() // a thread each, while all are held
			defer runtime.UnlockOSThread()
			up.Done()
			<-all
		}()
	}
	up.Wait()
	close(all)
}

// protect makes the guest a bad victim: of a debugger, and of the kernel when
// memory is short. Where it may not, the sandbox's own walls must do.
func (g *Guest) protect() {
	unix.Umask(0o022)
	if os.Geteuid() == 0 {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	var buf [16]byte
	n := readSmall(oomScoreFile, buf[:])
	if n == 0 {
		return
	}
	was := strings.TrimSpace(string(buf[:n]))
	// It stays open, as it is written twice for each program.
	var err error
	if g.oomFile, err = unix.Open(oomScoreFile, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return
	}
	switch {
	case setOOMScore(g.oomFile, ownOOMScore) == nil:
		g.ownScore, g.oomScore = ownOOMScore, was
	case os.Geteuid() == 0:
		// It may not spare itself, but may offer others.
		g.ownScore, g.oomScore = was, childOOMScore
	default:
		unix.Close(g.oomFile)
	}
}

// ownOOMScore makes the guest the last to be killed for memory, but not exempt:
// what a bomb might fork at a bad moment must not be exempt either.
const (
	ownOOMScore   = "-999"
	childOOMScore = "500"
	oomScoreFile  = "/proc/self/oom_score_adj"
)

// setOOMScore sets how readily the kernel kills this process for memory; file is
// its open oomScoreFile.
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
	mux.HandleFunc(guestapi.PathLimits, unary(g.limits))
	mux.HandleFunc("GET "+guestapi.PathMetrics, plain(g.metrics))
	mux.HandleFunc(guestapi.PathStreams, g.serveStream)
	mux.HandleFunc(guestapi.PathPorts+"{port}", g.servePort)
	mux.HandleFunc(guestapi.ProcStart, server(g.start))
	mux.HandleFunc(guestapi.ProcConnect, server(g.connect))
	mux.HandleFunc(guestapi.ProcList, unary(g.list))
	mux.HandleFunc(guestapi.ProcUpdate, unary(g.update))
	mux.HandleFunc(guestapi.ProcSendInput, unary(g.sendInput))
	mux.HandleFunc(guestapi.ProcCloseStdin, unary(g.closeStdin))
	mux.HandleFunc(guestapi.ProcSendSignal, unary(g.sendSignal))
	mux.HandleFunc(guestapi.FSStat, unary(g.stat))
	mux.HandleFunc(guestapi.FSListDir, unary(g.listDir))
	mux.HandleFunc(guestapi.FSMakeDir, unary(g.makeDir))
	mux.HandleFunc(guestapi.FSMove, unary(g.move))
	mux.HandleFunc(guestapi.FSRemove, unary(g.remove))
	mux.HandleFunc(guestapi.FSWatchDir, server(g.watchDir))
	mux.HandleFunc(guestapi.FSCreateWatcher, unary(g.createWatcher))
	mux.HandleFunc(guestapi.FSGetWatcherEvents, unary(g.getWatcherEvents))
	mux.HandleFunc(guestapi.FSRemoveWatcher, unary(g.removeWatcher))
	mux.HandleFunc(guestapi.PathFiles, g.files)
	mux.HandleFunc("GET "+guestapi.PathPreviews, g.previewFile)
	mux.HandleFunc(guestapi.PathLayer, g.layer)
	g.contextRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, &guestapi.WireError{
			Code: guestapi.CodeUnimplemented, Message: "no such procedure: " + r.URL.Path,
		})
	})
	return mux
}

// Close ends the connections and every process that was started here, with all
// their descendants.
func (g *Guest) Close() error {
	g.server.Close()
	g.watches.close()
	return g.killAll()
}

package guest

import (
	"cmp"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/changes"
	"github.com/glovebox-dev/glovebox/internal/guest/contexts"
	"github.com/glovebox-dev/glovebox/internal/guest/files"
	"github.com/glovebox-dev/glovebox/internal/guest/lease"
	"github.com/glovebox-dev/glovebox/internal/guest/picture"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guest/sudo"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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
	// Interpreter is the address at which programs of the box find E2B's code
	// interpreter, such as 127.0.0.1:49999. If it is empty, there is none. It is
	// for a guest with a loopback of its own.
	Interpreter string
	// Sudo has the command sudo, which exists from the first request on that comes
	// from a client of E2B's protocol.
	Sudo sudo.Config
	// Containers leaves root's programs the capabilities of a container engine, and
	// makes the command sudo from the start.
	Containers bool
	// Tunnel means that the box has a tunnel's interface in a network of its own.
	// NoTunnel says why it has none although it should.
	Tunnel   bool
	NoTunnel string
	// Lease, if not nil, is served. The caller ends the guest when it is over.
	Lease *lease.Lease
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

// Program is argv[0] when the guest executes its own program for a command. A
// program that embeds the guest and is started by this name calls [Main].
const Program = "glovebox-guest"

// A Guest serves the protocol of package guestapi. Its methods are safe for
// concurrent use.
type Guest struct {
	*connections
	processes *process.Set
	files     *files.Server
	changes   *changes.Tracker
	server    *http.Server
	inside    *inside
	sudo      *sudo.Server
}

// New makes the process a guest: from now on it adopts orphans and reaps every
// child. The caller ends the guest with Close. New fails if the process is not
// root and cfg.AsSelf is not set, or if a system call fails.
func New(cfg Config) (*Guest, error) {
	if !cfg.AsSelf && os.Geteuid() != 0 {
		return nil, errors.New("the guest is not root: it can run programs only as itself, which must be asked for")
	}
	accounts := account.New(account.Config{AsSelf: cfg.AsSelf, WorkDir: cfg.WorkDir, ImageUser: cfg.ImageUser})
	tracker := changes.New(accounts, cmp.Or(cfg.WorkDir, sandbox.WorkDir), cfg.WorkDir != "")
	processes, err := process.New(process.Config{
		MaxProcesses: cfg.MaxProcesses, CPUs: cfg.CPUs, AsSelf: cfg.AsSelf,
		WorkDir: cfg.WorkDir, Env: cfg.Env, ImageDir: cfg.ImageDir, Containers: cfg.Containers, Before: tracker.Before, Watch: tracker.Watch,
	}, accounts)
	if err != nil {
		return nil, err
	}
	readyThreads(cfg.Threads)
	previews := picture.NewMaker(func(args, env []string, a *account.Account, d *process.Descriptors) (*process.Child, error) {
		return processes.StartHelper(append([]string{Program, "picture"}, args...), env, a, d)
	})
	g := &Guest{
		connections: &connections{queue: newConnQueue()},
		processes:   processes,
		changes:     tracker,
		files:       files.New(accounts, previews.Preview, cfg.WorkDir != "", tracker.Watched),
		inside:      &inside{address: cfg.Interpreter},
		sudo:        sudo.New(cfg.Sudo, accounts, processes),
	}
	if cfg.Containers {
		g.sudo.Enable()
	}
	mux := http.NewServeMux()
	g.routes(mux, &cfg)
	g.processes.Routes(mux)
	g.files.Routes(mux)
	tracker.Routes(mux)
	if cfg.Lease != nil {
		cfg.Lease.Routes(mux)
	}
	previews.Routes(mux, accounts)
	interpreters := contexts.New(accounts, processes, previews.Preview, cfg.AsSelf, tracker.Before, tracker.Watch)
	interpreters.Routes(mux)
	mux.HandleFunc(guestapi.PathCloned, rpc.Unary((&clone{file: guestapi.GenerationFile, tell: interpreters.Cloned}).cloned))
	g.server = &http.Server{
		Handler:        g.watch(mux),
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
	go g.server.Serve(g.queue)
	return g, nil
}

// watch returns the guest's handler. At requests of clients of E2B's protocol, it
// makes what programs in E2B's sandboxes have.
func (g *Guest) watch(next http.Handler) http.Handler {
	g.inside.handler = next
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rpc.Extended(r) {
			g.inside.listen()
			g.sudo.Enable()
		}
		next.ServeHTTP(w, r)
	})
}

// routes adds the paths that the guest serves by itself.
func (g *Guest) routes(mux *http.ServeMux, cfg *Config) {
	if cfg.Workspaces != nil {
		mux.Handle(workspace.ServedAt+"/", cfg.Workspaces)
	}
	mux.HandleFunc(guestapi.PathHealth, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc(guestapi.PathLimits, rpc.Unary((&limiter{tunnel: cfg.Tunnel, noTunnel: cfg.NoTunnel}).limits))
	mux.HandleFunc("GET "+guestapi.PathMetrics, rpc.Plain((&meter{at: time.Now()}).metrics))
	mux.HandleFunc(guestapi.PathStreams, g.serveStream)
	mux.HandleFunc(guestapi.PathPorts+"{port}", servePort)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		rpc.WriteJSON(w, http.StatusNotFound, &guestapi.WireError{
			Code: guestapi.CodeUnimplemented, Message: "no such procedure: " + r.URL.Path,
		})
	})
}

// readyThreads makes n threads in advance. Threads of the Go runtime do not end,
// so the user's programs cannot use up the guest's share of the limit.
func readyThreads(n int) {
	var up sync.WaitGroup
	all := make(chan struct{})
	for range n {
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

// Close ends the connections, and kills every process that the guest started,
// with all descendants.
func (g *Guest) Close() error {
	g.server.Close()
	g.inside.close()
	g.sudo.Close()
	g.files.Close()
	g.changes.Close()
	return g.processes.Close()
}

package guest

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// DefaultSocket is the default path of the guest's socket.
const DefaultSocket = "/run/glovebox/guest.sock"

// Main is the guest's program; args are without the program's name. It returns
// the exit status. The commands are:
//
//	serve [flags]       run the guest; the default command
//	connect [--socket]  hand descriptor 0, a stream socket, to the guest
//	relay [--socket]    copy between descriptors 0 and 1 and the guest
//	picture TYPE        shrink the picture at descriptor 0; the answer goes to 1
//	tunnel [flags]      make an interface whose packets use descriptors 0 and 1
//
// The flags of serve are:
//
//	--socket PATH            listen at this socket
//	--conn-fd N              serve this connected socket at once
//	--nproc N                the limit on processes
//	--cpus N                 processors that programs may use
//	--maxprocs N             processors that the guest itself uses at once
//	--own DIR,...            make these directories and give them to the user
//	--resolver ADDRESS,...   the DNS servers of programs
//	--self                   run everything as the guest's own user
//	--stdio                  serve standard input and output as a connection
//	--leased                 with --stdio, end when that connection ends
//	--threads N              threads to make at the start
//	--nofile N               the limit on open files of a process; no core dumps
//	--image-env              give programs the guest's own environment
//	--image-user USER        the user that the image names for programs
//	--image-dir DIR          the directory in which the image has programs start
//	--no-setid               let no file get a set-user-ID or set-group-ID bit
//	--workspaces DIR         serve the workspaces in this directory
//
// On the connection of --stdio the other end speaks first. Serve ends at SIGTERM
// or SIGINT, and kills all processes that it started.
func Main(args []string) int {
	command := "serve"
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	run := map[string]func([]string) error{"serve": serve, "connect": connectMain, "relay": relayMain, "picture": pictureMain, "tunnel": tunnelMain}[command]
	err := fmt.Errorf("unknown command %q", command)
	if run != nil {
		err = run(args)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "glovebox-guest:", err)
		return 1
	}
	return 0
}

func socketFlag(fs *flag.FlagSet) *string {
	return fs.String("socket", DefaultSocket, "the guest's Unix socket")
}

// An order holds the arguments of serve.
type order struct {
	Config
	socket            string
	conns             []int
	maxProcs          int
	own, resolvers    string
	stdio, leased     bool
	openFiles         uint64
	noSetID, imageEnv bool
	workspaces        string
}

func parseOrder(args []string) (*order, error) {
	var o order
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	socket := socketFlag(fs)
	fs.Func("conn-fd", "an open stream socket to serve; may be given again", func(s string) error {
		fd, err := strconv.Atoi(s)
		o.conns = append(o.conns, fd)
		return err
	})
	fs.IntVar(&o.MaxProcesses, "nproc", 0, "limit on processes and threads")
	fs.Float64Var(&o.CPUs, "cpus", 0, "processors that programs may use")
	fs.IntVar(&o.maxProcs, "maxprocs", 0, "processors that the guest itself uses")
	fs.StringVar(&o.own, "own", "", "directories to make and give to the user, separated by commas")
	fs.StringVar(&o.resolvers, "resolver", "", "addresses of DNS servers, separated by commas")
	fs.BoolVar(&o.AsSelf, "self", false, "run everything as the guest's own user")
	fs.BoolVar(&o.stdio, "stdio", false, "serve the standard input and output as a connection")
	fs.BoolVar(&o.leased, "leased", false, "end when the standard input does")
	fs.IntVar(&o.Threads, "threads", 0, "threads to have from the start")
	fs.Uint64Var(&o.openFiles, "nofile", 0, "limit on the open files of each process")
	fs.BoolVar(&o.noSetID, "no-setid", false, "let no file get the bits that make a program run as its owner")
	fs.BoolVar(&o.imageEnv, "image-env", false, "give programs the guest's own environment")
	fs.StringVar(&o.ImageUser, "image-user", "", "who the image says runs programs")
	fs.StringVar(&o.ImageDir, "image-dir", "", "where the image says programs start")
	fs.StringVar(&o.workspaces, "workspaces", "", "directory of workspaces to serve")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.socket = *socket
	return &o, nil
}

func serve(args []string) error {
	// The parent may have left descriptors open. No program of the user's may
	// inherit them.
	if err := closeOnExec(); err != nil {
		return err
	}
	o, err := parseOrder(args)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	// Caught and dropped, not ignored: children would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	var owner *stdioConn
	if o.stdio {
		if owner, err = takeStdio(); err != nil {
			return err
		}
	}
	g, l, err := o.begin()
	if err != nil {
		if owner != nil {
			heard := make(chan struct{}) // closed when the client can receive the error
			go func() {
				defer close(heard)
				_ = owner.spokenTo(unspokenTime)
			}()
			select {
			case <-heard:
			case <-stop:
			}
		}
		return err
	}
	var ended <-chan struct{} // nil blocks for ever
	if owner != nil {
		if o.leased {
			ended = owner.ended
		}
		go func() {
			if owner.spokenTo(unspokenTime) == nil {
				g.ServeConn(owner)
			}
		}()
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	select {
	case <-ended:
		l.Close()
		return g.Close()
	case <-stop:
		l.Close()
		return g.Close()
	case err := <-done:
		return errors.Join(err, g.Close())
	}
}

// begin makes the guest and its listener.
func (o *order) begin() (*Guest, *net.UnixListener, error) {
	if o.maxProcs > 0 {
		runtime.GOMAXPROCS(o.maxProcs)
	}
	if o.openFiles > 0 {
		if err := limitFiles(o.openFiles); err != nil {
			return nil, nil, err
		}
	}
	if o.noSetID {
		if err := refuseSetID(); err != nil {
			return nil, nil, err
		}
	}
	if o.imageEnv {
		o.Env = os.Environ()
	}
	who, err := account.OfImage(o.ImageUser)
	if err != nil {
		who = nil // every program that runs as the default user fails with this reason
	}
	if err := ownDirs(o.own, who); err != nil {
		return nil, nil, err
	}
	if err := useResolvers(o.resolvers); err != nil {
		return nil, nil, err
	}
	if o.workspaces != "" {
		set, err := workspace.OpenServed(o.workspaces) // stays open until the process ends
		if err != nil {
			return nil, nil, err
		}
		o.Workspaces = set.Handler()
	}
	l, err := listen(o.socket)
	if err != nil {
		return nil, nil, err
	}
	g, err := New(o.Config)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	for _, fd := range o.conns {
		if err := g.ServeFD(fd); err != nil {
			return nil, nil, errors.Join(err, l.Close(), g.Close())
		}
	}
	return g, l, nil
}

// limitFiles bounds the open files of this process and its children, and
// disables core dumps. A stricter limit stays.
func limitFiles(n uint64) error {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	n = min(n, was.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
}

// closeOnExec sets the close-on-exec flag of every descriptor but 0, 1 and 2.
func closeOnExec() error {
	const first = 3
	err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Linux before 5.11, and system call filters, may refuse close_range.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// listen makes the guest's socket, in a directory that only its own user can
// enter. It removes the socket of an earlier guest.
func listen(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The umask gives the socket its mode at its creation. No other code runs
	// yet.
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

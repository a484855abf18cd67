package guest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/lease"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/sudo"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

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
	leave, loopback   bool
	hidden            bool
	tunnel            bool // the box has the interface link
	link              tunnelLink
	carriedUser       string // not empty for the process that carries packets
	carried           bool   // that process is above this one
}

// podEnv begins the names of variables that Kubernetes adds to those of the image.
// They name an API server that no program of a box reaches.
const podEnv = "KUBERNETES_"

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
	fs.BoolVar(&o.leave, leaveFlag[2:], false, "leave the network, if the kernel permits that")
	fs.BoolVar(&o.loopback, loopbackFlag[2:], false, "bring the loopback interface of a new network up")
	fs.BoolVar(&o.tunnel, "tunnel", false, "have an interface in the new network")
	o.link.flags(fs)
	fs.StringVar(&o.carriedUser, carryFlag[2:], "", "make that interface and carry its packets, for a guest with this UID:GID")
	fs.BoolVar(&o.carried, carriedFlag[2:], false, "the process that started the guest carries its packets")
	fs.BoolVar(&o.hidden, "hidden", false, "let no program of the same user trace the guest")
	fs.Func("lease", "take leases; how long to stay without one", func(s string) error {
		unheld, err := time.ParseDuration(s)
		o.Lease = lease.New(unheld)
		return err
	})
	fs.IntVar(&o.Threads, "threads", 0, "threads to have from the start")
	fs.Uint64Var(&o.openFiles, "nofile", 0, "limit on the open files of each process")
	fs.BoolVar(&o.noSetID, "no-setid", false, "let no file get the bits that make a program run as its owner")
	fs.BoolVar(&o.imageEnv, "image-env", false, "give programs the guest's own environment")
	fs.StringVar(&o.ImageUser, "image-user", "", "the user that the image names for programs")
	fs.StringVar(&o.ImageDir, "image-dir", "", "where the image says programs start")
	fs.StringVar(&o.Interpreter, "interpreter", "", "address at which programs find the code interpreter")
	fs.BoolVar(&o.Containers, "containers", false, "let programs run containers of their own")
	fs.StringVar(&o.Sudo.Dir, "sudo", "", "directory in which to make the command sudo")
	fs.StringVar(&o.Sudo.Socket, "sudo-socket", sudo.DefaultSocket, "the Unix socket of the command sudo")
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
	switch {
	case o.loopback:
		refuse(raiseLoopback(args))
	case o.carriedUser != "":
		status, err := o.carry(args[2:]) // after carryFlag and its value
		if err != nil {
			refuse(err)
		}
		os.Exit(status)
	case o.leave:
		if err := o.listenDirect(); err != nil { // the sandbox is reached by relays then
			fmt.Fprintln(os.Stderr, "glovebox-guest: take no orders to listen:", err)
		}
		status, refused := o.leaveNetwork(args)
		if refused == nil {
			os.Exit(status)
		}
		fmt.Fprintln(os.Stderr, "glovebox-guest: stay in this network:", refused)
		if o.tunnel {
			o.NoTunnel = refused.Error()
		}
	}
	if o.carried {
		unix.Close(refusalFD)
		o.Tunnel = true
	}
	if o.hidden {
		hide()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	// Caught and dropped, not ignored: children would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	var owner *stdioConn
	if o.stdio || o.leased {
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
			switch {
			case owner.spokenTo(unspokenTime) != nil:
			case o.stdio:
				g.ServeConn(owner)
			default:
				_, _ = io.Copy(io.Discard, owner) // the end of the input is all that it tells
			}
		}()
	}
	var over <-chan struct{}
	if o.Lease != nil {
		over = o.Lease.Over()
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	select {
	case <-ended:
		l.Close()
		return g.Close()
	case <-over:
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
		if err := process.RefuseSetID(); err != nil {
			return nil, nil, err
		}
	}
	if o.imageEnv {
		o.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, podEnv) })
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

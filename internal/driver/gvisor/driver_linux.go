package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Options configure a Driver.
type Options struct {
	// StateDir is where the driver keeps its boxes, in a directory "gvisor"
	// of its own that it makes. Several processes may share it.
	StateDir string
	// Program is the static executable to start the maker from, whose main
	// calls [Reexec] first; this process's own if empty.
	Program string
	// Guest is the guest's executable. Its path must not change while the
	// driver is in use.
	Guest string
	// Images keeps the images other than that of the host; with nil there are
	// none.
	Images *image.Store
	// Log receives what goes wrong in the background; nil discards it.
	Log *slog.Logger
}

// A Driver makes boxes by its maker, which it starts when it is first needed.
type Driver struct {
	opts Options

	mu    sync.Mutex
	maker *makerProcess // nil before the first use and after its end
	users *boxUsers     // nil where boxes have the host's
	// whyHostUsers says why users is nil, if there is a maker.
	whyHostUsers error
	boxes        map[*box]bool // that hold connections
	closed       bool
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. It does no work yet; Probe tells whether it can.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.StateDir) {
		return nil, sandbox.Errorf(sandbox.Invalid, "state directory %q is not absolute", opts.StateDir)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Program == "" {
		p, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own executable: %w", err)
		}
		opts.Program = p
	}
	return &Driver{opts: opts, boxes: map[*box]bool{}}, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name:     "gvisor",
		Isolates: true,
		Boundary: sandbox.BoundaryKernel,
		Features: driver.Features{
			Host: true, Pause: true, Incidents: true, Detach: true, Network: true,
			Workspace: true, Unnamed: true, Images: d.opts.Images != nil, Ports: true,
		},
	}
}

// makerProcess is a running maker.
type makerProcess struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	done chan struct{} // closed when it does no more for this driver
}

// running returns the maker, started if it is not there.
func (d *Driver) running() (*makerProcess, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, sandbox.Errorf(sandbox.Conflict, "driver is closed")
	}
	if d.maker != nil {
		select {
		case <-d.maker.done:
			d.opts.Log.Warn("maker ended; starting another")
			d.maker.conn.Close()
			d.maker = nil
		default:
			return d.maker, nil
		}
	}
	m, err := d.startMaker()
	if err != nil {
		return nil, err
	}
	d.maker = m
	return m, nil
}

func (d *Driver) startMaker() (*makerProcess, error) {
	if err := checkProgram(d.opts.Program); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make maker's socket: %w", err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "maker"), os.NewFile(uintptr(fds[1]), "driver")
	defer far.Close()
	nc, err := fileConn(near)
	if err != nil {
		return nil, err
	}
	conn := nc.(*net.UnixConn)

	cmd := exec.Command(d.opts.Program)
	first, trees := d.openUsers()
	cmd.Args = []string{makerName, d.opts.StateDir, d.opts.Guest, strconv.Itoa(first)}
	cmd.Env = network.Environ()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{far}
	for _, t := range trees {
		defer t.Close()
		cmd.Args = append(cmd.Args, t.Name())
		cmd.ExtraFiles = append(cmd.ExtraFiles, t.File)
	}
	if cmd.SysProcAttr, err = makerAttributes(); err != nil {
		conn.Close()
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := startFiltered(cmd); err != nil {
		conn.Close()
		return nil, explainStart(err)
	}
	if first != 0 {
		liftProcessLimit(cmd.Process.Pid)
	}
	m := &makerProcess{cmd: cmd, conn: conn, done: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.opts.Log.Debug("maker", "says", lines.Text())
		}
		_, _ = io.Copy(io.Discard, stderr)
		close(m.done)
		// It may stay to watch over detached boxes; see maker.linger.
		_ = cmd.Wait()
	}()
	return m, nil
}

// makerAttributes puts the maker into its own session, so that a terminal's
// signals do not reach it, its own mount namespace, and its own user namespace,
// in which it is root. An ordinary user is the only one there. Root finds
// everybody there under the number they have outside, but has no power over
// anything that belongs to the machine and not to that namespace: even then a
// box's kernel does not run with the machine's privileges.
func makerAttributes() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER}
	if os.Geteuid() != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		return attr, nil
	}
	var err error
	if attr.UidMappings, err = identityMap("/proc/self/uid_map"); err != nil {
		return nil, err
	}
	if attr.GidMappings, err = identityMap("/proc/self/gid_map"); err != nil {
		return nil, err
	}
	attr.GidMappingsEnableSetgroups = true
	return attr, nil
}

// startFiltered starts cmd with some system calls refused in it and in all that
// it starts.
//
// membarrier(2) answers ENOSYS. A package of gVisor's registers for it at
// start, which takes some ten milliseconds in each of the processes that make a
// box and gains nothing there; told that the call does not exist, it does
// without.
//
// To make or change a file on the host with a bit that makes whoever executes
// it its owner or group is refused. Only workspaces have files on the host, and
// what a sandbox puts there must not be such a program, whosever it is.
//
// To have the CPUID instruction trapped is refused, as by a processor that cannot:
// every program executes it dozens of times at its start.
//
// The filter stays on the thread that forks, so that thread ends here.
func startFiltered(cmd *exec.Cmd) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: see above
		if err := refuseCalls(); err != nil {
			errc <- err
			return
		}
		errc <- cmd.Start()
	}()
	return <-errc
}

// call sends req to the maker and waits for its reply. streams are the far ends
// of streams to the guest; they stay the caller's.
func (d *Driver) call(ctx context.Context, req *request, streams ...*os.File) (*reply, error) {
	m, err := d.running()
	if err != nil {
		return nil, err
	}
	near, far, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	files := append([]*os.File{far}, streams...)
	conn, err := fileConn(near)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := sendRequest(m.conn, req, files...); err != nil {
		return nil, d.makerLost(err)
	}
	far.Close()
	// Shutting our side down tells the maker to give up; the reply still
	// comes, once all that was begun is undone.
	stop := context.AfterFunc(ctx, func() { _ = conn.(*net.UnixConn).CloseWrite() })
	defer stop()
	var rep reply
	if err := json.NewDecoder(conn).Decode(&rep); err != nil {
		return nil, d.makerLost(err)
	}
	if err := rep.Err.err(); err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, err
	}
	return &rep, nil
}

func (d *Driver) makerLost(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the process that makes sandboxes ended: %w", err)
}

// Probe implements [driver.Driver] by having the maker look at what a box
// needs.
func (d *Driver) Probe(ctx context.Context) error {
	_, err := d.call(ctx, &request{Op: opProbe})
	return err
}

// maxStreams bounds the streams that a guest is started with, the driver's own
// among them.
const maxStreams = 4

// Create implements [driver.Driver]. The guest is started with the streams for
// the first calls of Dial, and one for the driver's own questions.
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkNetwork(spec.Network); err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	b := d.newBox(spec.ID)
	var far []*os.File
	for range 1 + min(max(1, spec.Streams), maxStreams-1) {
		n, f, err := socketpair()
		var near net.Conn
		if err == nil {
			defer f.Close()
			far = append(far, f)
			near, err = fileConn(n)
		}
		if err != nil {
			b.release()
			return nil, err
		}
		b.spare = append(b.spare, near)
	}
	b.own, b.spare = b.spare[0], b.spare[1:]
	root, done, err := d.imageRoot(ctx, spec.Image)
	if err == nil {
		defer done()
		var rep *reply
		req := &request{Op: opCreate, Ref: spec.ID, Spec: spec, Secrets: secretValues(spec), Root: root, Trace: trace.On(ctx)}
		if rep, err = d.create(ctx, req, far); err == nil {
			trace.Adopt(ctx, rep.Spans)
		}
	}
	if err != nil {
		b.release()
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	if err := ctx.Err(); err != nil {
		// It came to be all the same; nobody would own it.
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	rep, err := d.call(ctx, &request{Op: opAttach, Ref: ref})
	if err != nil {
		return nil, sandbox.Wrap(err, "attach box", ref)
	}
	if rep.Sentry != 0 {
		// The maker that kept the memory limit may be gone. Ours cannot open
		// the file to watch, as it is in another user namespace; we can.
		memory, err := openMemoryFile(rep.Sentry)
		if err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
		defer memory.Close()
		if _, err := d.call(ctx, &request{Op: opWatch, Ref: ref}, memory); err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
	}
	return d.newBox(ref), nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	rep, err := d.call(ctx, &request{Op: opList})
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	return rep.Refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	_, err := d.call(ctx, &request{Op: opDiscard, Ref: ref})
	return sandbox.Wrap(err, "discard box", ref)
}

// Close implements [driver.Driver]: it ends the maker, which destroys what is
// attached, and returns when it has.
func (d *Driver) Close() error {
	d.mu.Lock()
	m := d.maker
	d.maker, d.closed = nil, true
	if d.users != nil {
		d.users.namespace.Close()
		d.users = nil
	}
	boxes := slices.Collect(maps.Keys(d.boxes))
	d.mu.Unlock()
	for _, b := range boxes {
		b.release()
	}
	if m == nil {
		return nil
	}
	err := m.conn.Close()
	<-m.done
	return err
}

// box is a box, seen from the driver.
type box struct {
	d   *Driver
	ref string

	guest *guestapi.Client // for the driver's own questions

	// asleep is held while the box is paused, resumed, or awake for a
	// question, so that these do not undo each other.
	asleep sync.Mutex

	mu sync.Mutex
	// The streams that the guest was started with, until they are used: spare
	// by Dial, own by guest.
	spare []net.Conn
	own   net.Conn
}

// newBox returns a box that holds connections until it is released.
func (d *Driver) newBox(ref string) *box {
	b := &box{d: d, ref: ref}
	b.guest = guestapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		return b.dial(ctx, b.takeOwn)
	})
	d.mu.Lock()
	d.boxes[b] = true
	d.mu.Unlock()
	return b
}

// release closes what b holds. It may be called again.
func (b *box) release() {
	b.d.mu.Lock()
	delete(b.d.boxes, b)
	b.d.mu.Unlock()
	b.guest.Close()
	if c := b.takeOwn(); c != nil {
		c.Close()
	}
	for c := b.takeSpare(); c != nil; c = b.takeSpare() {
		c.Close()
	}
}

var (
	_ driver.Box       = (*box)(nil)
	_ driver.Pauser    = (*box)(nil)
	_ driver.Reporter  = (*box)(nil)
	_ driver.Networker = (*box)(nil)
)

func (b *box) Ref() string { return b.ref }

// takeOwn takes the stream for the driver's questions, or nil.
func (b *box) takeOwn() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.own
	b.own = nil
	return c
}

// takeSpare takes a stream for Dial that was there from the start, or nil.
func (b *box) takeSpare() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) == 0 {
		return nil
	}
	c := b.spare[0]
	b.spare = b.spare[1:]
	return c
}

// Dial implements [driver.Box]. The first streams are those that the guest was
// started with, which saves a process in the box.
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	return b.dial(ctx, b.takeSpare)
}

func (b *box) dial(ctx context.Context, take func() net.Conn) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := take(); c != nil {
		return c, nil
	}
	near, far, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if _, err := b.d.call(ctx, &request{Op: opDial, Ref: b.ref}, far); err != nil {
		near.Close()
		return nil, sandbox.Wrap(err, "dial box", b.ref)
	}
	return fileConn(near)
}

// Receipt implements [driver.Box]. Whoever asks need not know whether the box
// is paused.
func (b *box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	receipt, err := b.receipt(ctx)
	return receipt, sandbox.Wrap(err, "read receipt of box", b.ref)
}

func (b *box) receipt(ctx context.Context) (_ sandbox.Receipt, err error) {
	b.asleep.Lock()
	defer b.asleep.Unlock()
	rep, err := b.d.call(ctx, &request{Op: opReceipt, Ref: b.ref})
	if err != nil {
		return nil, err
	}
	if rep.Report.Paused {
		if _, err := b.d.call(ctx, &request{Op: opResume, Ref: b.ref}); err != nil {
			return nil, err
		}
		defer func() {
			_, perr := b.d.call(context.WithoutCancel(ctx), &request{Op: opPause, Ref: b.ref})
			err = errors.Join(err, perr)
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	in, err := b.guest.Limits(ctx)
	if err != nil {
		return nil, err
	}
	return rep.Report.receipt(in)
}

// askTime is how long a box may take to say what its limits are.
const askTime = 10 * time.Second

func (b *box) Incidents(ctx context.Context) (driver.Incidents, error) {
	rep, err := b.d.call(ctx, &request{Op: opIncidents, Ref: b.ref})
	if err != nil {
		return driver.Incidents{}, sandbox.Wrap(err, "read incidents of box", b.ref)
	}
	return rep.Incidents, nil
}

// Traffic implements [driver.Networker].
func (b *box) Traffic(ctx context.Context, after int64) (sandbox.Traffic, error) {
	rep, err := b.d.call(ctx, &request{Op: opTraffic, Ref: b.ref, After: after})
	if err != nil {
		return sandbox.Traffic{}, sandbox.Wrap(err, "read traffic of box", b.ref)
	}
	return *rep.Traffic, nil
}

// Authority implements [driver.Networker].
func (b *box) Authority(ctx context.Context) ([]byte, error) {
	rep, err := b.d.call(ctx, &request{Op: opAuthority, Ref: b.ref})
	if err != nil {
		return nil, sandbox.Wrap(err, "read authority of box", b.ref)
	}
	return rep.Authority, nil
}

// SetNetwork implements [driver.Networker].
func (b *box) SetNetwork(ctx context.Context, n sandbox.Network) error {
	if err := checkNetwork(n); err != nil {
		return err
	}
	_, err := b.d.call(ctx, &request{Op: opSetNetwork, Ref: b.ref, Network: n})
	return sandbox.Wrap(err, "change network of box", b.ref)
}

func (b *box) Pause(ctx context.Context) error {
	b.asleep.Lock()
	defer b.asleep.Unlock()
	_, err := b.d.call(ctx, &request{Op: opPause, Ref: b.ref})
	return sandbox.Wrap(err, "pause box", b.ref)
}

func (b *box) Resume(ctx context.Context) error {
	b.asleep.Lock()
	defer b.asleep.Unlock()
	_, err := b.d.call(ctx, &request{Op: opResume, Ref: b.ref})
	return sandbox.Wrap(err, "resume box", b.ref)
}

// Destroy implements [driver.Box]. Once begun it is not given up: the maker
// goes on even if ctx ends.
func (b *box) Destroy(ctx context.Context) error {
	b.release()
	_, err := b.d.call(ctx, &request{Op: opDestroy, Ref: b.ref})
	return sandbox.Wrap(err, "destroy box", b.ref)
}

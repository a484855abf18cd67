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
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/callfilter"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Options configure a Driver.
type Options struct {
	// StateDir is the directory of the driver's state. The driver makes its own
	// subdirectory "gvisor" in it for its boxes. Several processes may share it.
	StateDir string
	// Program is the static executable for the maker; its main calls [Reexec]
	// first. If it is empty, it is this process's executable.
	Program string
	// Guest is the path of the guest's executable. It must not change while the
	// driver is in use.
	Guest string
	// Images keeps the images other than the host's; if it is nil, there are none.
	Images *image.Store
	// Log receives errors of background work; nil discards them.
	Log *slog.Logger
}

// A Driver makes boxes with its maker, which it starts at the first use.
type Driver struct {
	opts Options

	mu    sync.Mutex
	maker *makerProcess // nil before the first use and after its end
	users *users.Range  // nil if boxes have the host's users
	// whyHostUsers is the reason why users is nil, if there is a maker.
	whyHostUsers error
	boxes        map[*box]bool // the boxes that hold connections
	closed       bool
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. It starts no process yet; Probe reports whether the driver
// can be used. The caller closes the driver.
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
	done chan struct{} // closed when the maker's work for this driver is done
}

// errDriverClosed returns the error for a use of a closed driver.
func errDriverClosed() error { return sandbox.Errorf(sandbox.Conflict, "driver is closed") }

// running returns the maker, and starts it if there is none.
func (d *Driver) running() (*makerProcess, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDriverClosed()
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
	nc, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	conn := nc.(*net.UnixConn)

	cmd := exec.Command(d.opts.Program)
	first, trees := d.openUsers()
	cmd.Args = []string{message.SupervisorName, d.opts.StateDir, d.opts.Guest, strconv.Itoa(first)}
	cmd.Env = network.Environ()
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{far}
	for _, t := range trees {
		defer t.Close()
		cmd.Args = append(cmd.Args, t.Name())
		cmd.ExtraFiles = append(cmd.ExtraFiles, t.File)
	}
	if cmd.SysProcAttr, err = users.SupervisorAttributes(); err != nil {
		conn.Close()
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := callfilter.Start(cmd); err != nil {
		conn.Close()
		return nil, diagnosis.ExplainStart(err)
	}
	if first != 0 {
		users.LiftProcessLimit(cmd.Process.Pid)
	}
	m := &makerProcess{cmd: cmd, conn: conn, done: make(chan struct{})}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.opts.Log.Debug("maker", "says", lines.Text())
		}
		_, _ = io.Copy(io.Discard, stderr)
		close(m.done)
		// The maker may stay to watch over detached boxes; see maker.linger.
		_ = cmd.Wait()
	}()
	return m, nil
}

// call sends req to the maker and waits for its reply. streams are the far ends of
// streams to the guest; the caller closes them.
func (d *Driver) call(ctx context.Context, req *message.Request, streams ...*os.File) (*message.Reply, error) {
	m, err := d.running()
	if err != nil {
		return nil, err
	}
	near, far, err := message.Socketpair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	files := append([]*os.File{far}, streams...)
	conn, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := message.Send(m.conn, req, files...); err != nil {
		return nil, d.makerLost(err)
	}
	far.Close()
	// A shutdown of this side makes the maker cancel the request. The reply still
	// arrives, after the maker has undone all partial work.
	stop := context.AfterFunc(ctx, func() { _ = conn.(*net.UnixConn).CloseWrite() })
	defer stop()
	var rep message.Reply
	if err := json.NewDecoder(conn).Decode(&rep); err != nil {
		return nil, d.makerLost(err)
	}
	if err := rep.Err.Err(); err != nil {
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

// Probe implements [driver.Driver]. The maker checks the requirements of a box.
func (d *Driver) Probe(ctx context.Context) error {
	_, err := d.call(ctx, &message.Request{Op: message.OpProbe})
	return err
}

// Create implements [driver.Driver]. The guest starts with the streams for the
// first calls of Dial, and with one for the driver's own requests.
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := spec.Network.CheckCanonical(); err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	b := d.newBox(spec.ID)
	var far []*os.File
	for range 1 + min(max(1, spec.Streams), message.MaxStreams-1) {
		n, f, err := message.Socketpair()
		var near net.Conn
		if err == nil {
			defer f.Close()
			far = append(far, f)
			near, err = message.FileConn(n)
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
		var rep *message.Reply
		req := &message.Request{Op: message.OpCreate, Ref: spec.ID, Spec: spec, Secrets: secretValues(spec), Root: root, Trace: trace.On(ctx)}
		if rep, err = d.create(ctx, req, far); err == nil {
			trace.Adopt(ctx, rep.Spans)
		}
	}
	if err != nil {
		b.release()
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	if err := ctx.Err(); err != nil {
		// The maker completed the box anyway. Destroy it, or it would leak.
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	rep, err := d.call(ctx, &message.Request{Op: message.OpAttach, Ref: ref})
	if err != nil {
		return nil, sandbox.Wrap(err, "attach box", ref)
	}
	if rep.Sentry != 0 {
		// The maker that enforced the memory limit may have ended. This driver's
		// maker cannot open the sentry's memory file, because the sentry is in
		// another user namespace. This process can.
		memory, err := memwatch.Open(rep.Sentry)
		if err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
		defer memory.Close()
		if _, err := d.call(ctx, &message.Request{Op: message.OpWatch, Ref: ref}, memory); err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
	}
	return d.newBox(ref), nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	rep, err := d.call(ctx, &message.Request{Op: message.OpList})
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	return rep.Refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	_, err := d.call(ctx, &message.Request{Op: message.OpDiscard, Ref: ref})
	return sandbox.Wrap(err, "discard box", ref)
}

// Close implements [driver.Driver]. It ends the maker, and returns when the maker
// has destroyed the attached boxes.
func (d *Driver) Close() error {
	d.mu.Lock()
	m := d.maker
	d.maker, d.closed = nil, true
	if d.users != nil {
		d.users.Close()
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

// secretValues returns the values of a spec's secrets.
func secretValues(spec *driver.Spec) []string {
	var values []string
	for _, s := range spec.Secrets {
		values = append(values, s.Value.Reveal())
	}
	return values
}

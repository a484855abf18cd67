package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/snapfiles"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/state"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Options configure a Driver.
type Options struct {
	// StateDir is the directory of the driver's state. The driver makes its own
	// subdirectory "gvisor" in it for its boxes. Several processes may share it.
	StateDir string
	// Program is the static executable for the supervisor; its main runs the
	// roles of cmd/glovebox first. If it is empty, it is this process's executable.
	Program string
	// Guest is the path of the guest's executable. It must not change while the
	// driver is in use.
	Guest string
	// Images keeps the images other than the host's; if it is nil, there are none.
	Images *image.Store
	// StateKey opens encrypted states; nil opens none. Encrypt encrypts further ones
	// with it.
	StateKey sealed.Key
	Encrypt  bool
	// Log receives errors of background work; nil discards them.
	Log *slog.Logger
}

// A Driver makes boxes with its supervisor, which it starts at the first use.
type Driver struct {
	opts Options

	client *client
	packer *state.Packer
	files  *snapfiles.Keeper

	mu     sync.Mutex
	boxes  map[*box]bool         // those that hold connections
	others map[builds.ID]*client // of supervisors of other builds
	closed bool
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.BuildKeeper = (*Driver)(nil)
	_ driver.LastMeter   = (*Driver)(nil)
)

// New returns a driver. It starts no process yet; Probe reports whether the driver
// can be used. The caller closes the driver.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.StateDir) {
		return nil, sandbox.Errorf(sandbox.Invalid, "state directory %q is not absolute", opts.StateDir)
	}
	if opts.Encrypt && len(opts.StateKey) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "no key to encrypt states with")
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
	c := &client{program: opts.Program, stateDir: opts.StateDir, guest: opts.Guest, log: opts.Log, key: opts.StateKey, encrypt: opts.Encrypt, sending: make(turn, 1), leases: map[string]driver.Lease{}}
	packer := &state.Packer{Dir: filepath.Join(opts.StateDir, "gvisor", "packing"), Based: message.PagesFile}
	files := &snapfiles.Keeper{Dir: filepath.Join(opts.StateDir, "gvisor", "snapshots"), Key: opts.StateKey, Encrypt: opts.Encrypt}
	return &Driver{opts: opts, client: c, packer: packer, files: files, boxes: map[*box]bool{}, others: map[builds.ID]*client{}}, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name:     "gvisor",
		Isolates: true,
		Boundary: sandbox.BoundaryKernel,
		Features: driver.Features{
			Host: true, Pause: true, Incidents: true, Usage: true, Detach: true, Lease: true, Network: true,
			Workspace: true, Unnamed: true, Mounts: true, Save: true, Snapshot: true, Rollback: true, DiskSnapshot: true, Restart: true, Images: d.opts.Images != nil, Ports: true, Interpreter: true, Containers: true,
		},
	}
}

// Probe implements [driver.Driver]. The supervisor checks the requirements of a box.
func (d *Driver) Probe(ctx context.Context) error {
	_, err := d.client.call(ctx, &message.Request{Op: message.OpProbe})
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
	if spec.Detached && spec.Lease != nil {
		d.client.keepLease(spec.ID, *spec.Lease)
	}
	var far []*os.File
	for range 1 + min(max(1, spec.Streams), message.MaxStreams-1) {
		n, f, err := message.Socketpair()
		var near net.Conn
		if err == nil {
			defer f.Close()
			far = append(far, f)
			near, err = b.open(n)
		}
		if err != nil {
			b.release()
			return nil, err
		}
		b.spare = append(b.spare, near)
	}
	b.own, b.spare = b.spare[0], b.spare[1:]
	root, done, err := imageRoot(ctx, d.opts.Images, spec.Image)
	if err == nil {
		defer done()
		var rep *message.Reply
		req := &message.Request{Op: message.OpCreate, Ref: spec.ID, Spec: spec, Secrets: secretValues(spec.Secrets), Root: root, Trace: trace.On(ctx)}
		if rep, err = d.client.create(ctx, req, spec, far); err == nil {
			trace.Adopt(ctx, rep.Spans)
		}
	}
	if err != nil {
		b.release()
		d.client.forgetLease(spec.ID)
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	if err := ctx.Err(); err != nil {
		// The supervisor completed the box anyway. Destroy it, or it would leak.
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	rep, err := d.client.call(ctx, &message.Request{Op: message.OpAttach, Ref: ref})
	if err != nil {
		return nil, sandbox.Wrap(err, "attach box", ref)
	}
	if rep.Sentry != 0 {
		// The supervisor that enforced the memory limit may have ended. This driver's
		// supervisor cannot open the sentry's memory file, because the sentry is in
		// another user namespace. This process can.
		memory, err := memwatch.Open(rep.Sentry)
		if err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
		defer memory.Close()
		if _, err := d.client.call(ctx, &message.Request{Op: message.OpWatch, Ref: ref}, memory); err != nil {
			return nil, sandbox.Wrap(err, "attach box", ref)
		}
	}
	return d.newBox(ref), nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	rep, err := d.client.call(ctx, &message.Request{Op: message.OpList})
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	return rep.Refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	d.client.forgetLease(ref)
	_, err := d.client.call(ctx, &message.Request{Op: message.OpDiscard, Ref: ref})
	return sandbox.Wrap(err, "discard box", ref)
}

// LastUsage implements [driver.LastMeter].
func (d *Driver) LastUsage(ctx context.Context, ref string) (driver.Usage, error) {
	return d.client.usage(ctx, ref)
}

// Close implements [driver.Driver]. It ends the supervisor, and returns when the
// supervisor has destroyed the attached boxes.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	clients := append(slices.Collect(maps.Values(d.others)), d.client)
	boxes := slices.Collect(maps.Keys(d.boxes))
	d.mu.Unlock()
	var supervisors []*supervisorProcess
	for _, c := range clients {
		if p := c.close(); p != nil {
			supervisors = append(supervisors, p)
		}
	}
	for _, b := range boxes {
		b.release()
	}
	var errs []error
	for _, p := range supervisors {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

// secretValues returns the values of secrets.
func secretValues(secrets []sandbox.Secret) []string {
	var values []string
	for _, s := range secrets {
		values = append(values, s.Value.Reveal())
	}
	return values
}

// newBox returns a box, and keeps it until its release.
func (d *Driver) newBox(ref string) *box {
	b := newBox(d.client, d.opts.Images, ref, d.forget)
	b.ofBuild, b.packer, b.files = d.ofBuild, d.packer, d.files
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[b] = true
	return b
}

func (d *Driver) forget(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.boxes, b)
}

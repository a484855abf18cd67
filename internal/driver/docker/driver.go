package docker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/registries"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The container engines that this package knows.
const (
	Docker = dockerapi.Docker
	Podman = dockerapi.Podman
)

// Options configure a Driver.
type Options struct {
	// Engine is [Docker] or [Podman]. It selects where the driver looks for the
	// container engine, and the names in messages.
	Engine string
	// Host is the container engine's address, like unix:///var/run/docker.sock. If
	// it is empty, the driver looks where the container engine's own tools look.
	Host string
	// Runtime is the OCI runtime to request from the container engine, such as
	// runsc. Empty is the container engine's default.
	Runtime string
	// StateDir distinguishes the boxes of this driver from boxes of other drivers
	// on the same engine. The driver makes a file in its subdirectory "docker" or
	// "podman".
	StateDir string
	// Guest is the path of the guest's program, a static Linux binary.
	Guest string
	// Inside and Outside are for a process that is itself in a container. Inside is
	// a directory that the container engine has at the path Outside, so workspaces
	// below Inside are mounted from below Outside. Outside is empty if the paths are
	// the same.
	Inside, Outside string
	// Network is the path of a program for Linux, whose main function calls
	// [network.Main] if its first argument is [network.ProcessName]. If it is
	// empty, boxes have no network.
	Network string
	// Workspaces selects where workspaces are kept. [WorkspacesDirectory] is
	// directories of this machine that the container engine has as well;
	// [WorkspacesVolume] is a volume of the container engine. Empty is a volume if
	// the container engine is reached by network and Outside is empty, otherwise
	// directories.
	Workspaces string
	// Registries are the only registries to fetch images from, like docker.io, at
	// any address. If it is empty, all registries at public addresses are allowed.
	Registries []string
	// Hold is how long a guest waits for its holder; 0 is [lease.DefaultHold].
	Hold time.Duration
	// Lookup resolves the names of registries; nil is this machine's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Log receives errors of background work; nil discards them.
	Log *slog.Logger
	// Getenv replaces os.Getenv in tests; nil is os.Getenv.
	Getenv func(string) string
}

// find returns the options that select the container engine.
func (o *Options) find() dockerapi.Options {
	return dockerapi.Options{Name: o.Engine, Host: o.Host, Getenv: o.Getenv}
}

// A Driver makes boxes with a container engine. Its methods are safe for concurrent
// use.
type Driver struct {
	*images
	*workspaces
	*snapshots.Keeper

	name    string // Docker or Podman
	log     *slog.Logger
	conn    *connection
	state   *container.StateDir
	boxes   *container.Boxes
	volumes *volumes
	launch  *launcher
}

var _ driver.Driver = (*Driver)(nil)
var _ driver.SnapshotKeeper = (*Driver)(nil)

// New returns a driver. It does not connect yet; Probe reports whether the driver
// can be used. Errors are of kind Invalid. The caller closes the driver.
func New(opts Options) (*Driver, error) {
	if opts.Engine != Docker && opts.Engine != Podman {
		return nil, sandbox.Errorf(sandbox.Invalid, "there is no engine %q", opts.Engine)
	}
	if !filepath.IsAbs(opts.StateDir) {
		return nil, sandbox.Errorf(sandbox.Invalid, "state directory %q is not absolute", opts.StateDir)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Getenv == nil {
		opts.Getenv = os.Getenv
	}
	if opts.Lookup == nil {
		opts.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	conn := &connection{find: opts.find()}
	state := container.NewStateDir(opts.StateDir, opts.Engine)
	volumes := newVolumes(opts.Guest)
	boxes := container.NewBoxes(state, opts.Network)
	keeper := &snapshots.Keeper{Open: conn.open, State: state, Log: opts.Log}
	l := &launcher{
		snapshots: keeper,
		runtime:   opts.Runtime, inside: opts.Inside, outside: opts.Outside, network: container.CanNetwork(opts.Network), hold: opts.Hold, log: opts.Log,
		conn: conn, state: state, boxes: boxes, volumes: volumes,
	}
	pulls := &pulls{registries: registries.Rules{Allowed: opts.Registries, Lookup: opts.Lookup}, running: make(map[string]*pull)}
	return &Driver{
		images:     &images{conn: conn, volumes: volumes, pulls: pulls},
		workspaces: newWorkspaces(&opts, conn, l),
		Keeper:     keeper,
		name:       opts.Engine, log: opts.Log, conn: conn, state: state, boxes: boxes, volumes: volumes, launch: l,
	}, nil
}

// Info implements [driver.Driver]. The driver does not pause boxes. An idle
// container costs no CPU, and these container engines need more time to freeze and
// thaw it than a run takes.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name:     d.name,
		Isolates: true,
		// The name of a runtime does not prove which program is behind it.
		Boundary: sandbox.BoundaryContainer,
		Features: driver.Features{
			Incidents: true, Detach: true, Lease: true, Network: d.launch.network, Workspace: true, Mounts: true, Images: true, EngineImages: true, Ports: true, Interpreter: true,
			DiskSnapshot: true,
		},
	}
}

// Probe implements [driver.Driver].
func (d *Driver) Probe(ctx context.Context) error {
	e, err := d.conn.open(ctx)
	if err != nil {
		return err
	}
	program, err := d.volumes.program(e)
	if err != nil {
		return err
	}
	return program.Close()
}

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	return d.make(ctx, spec, "")
}

// CreateFrom implements [driver.SnapshotKeeper].
func (d *Driver) CreateFrom(ctx context.Context, spec *driver.Spec, snapshot string) (driver.Box, error) {
	if !sandbox.ValidID(snapshot) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", snapshot)
	}
	return d.make(ctx, spec, snapshot)
}

// make makes a box, with the files of a snapshot unless that is "".
func (d *Driver) make(ctx context.Context, spec *driver.Spec, snapshot string) (driver.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.create(ctx, spec, snapshot)
	if err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	return b, nil
}

func (d *Driver) create(ctx context.Context, spec *driver.Spec, snapshot string) (*container.Box, error) {
	e, err := d.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.launch.check(e, spec); err != nil {
		return nil, err
	}
	var files *snapshots.Files
	if snapshot != "" {
		if files, err = d.OpenFiles(ctx, e, snapshot); err != nil {
			return nil, err
		}
		defer files.Close()
	}
	image, err := d.images.image(ctx, e, spec.Image)
	if err == nil && files != nil {
		err = files.Manifest.CheckFits(spec, image.id)
	}
	if err != nil {
		return nil, err
	}
	b, err := d.launch.create(ctx, e, spec, image)
	if err != nil || files == nil {
		return b, err
	}
	if err := b.Restore(ctx, files.Manifest.Disk, files); err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	b, err := d.attach(ctx, ref)
	if err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	return b, nil
}

func (d *Driver) attach(ctx context.Context, ref string) (*container.Box, error) {
	e, err := d.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	p := d.launch.platform(e)
	c, err := p.inspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	if c.State == nil || !c.State.Running {
		return nil, driver.ErrGone
	}
	rec, err := container.DecodeRecord(c.Config.Labels)
	if err != nil {
		return nil, err
	}
	b := d.boxes.Add(p, rec)
	if err := b.TakeOverNetwork(ctx, d.launch.tunnel(e, ref, c.Image, "")); err != nil {
		// The box continues without a network; its receipt says that it reaches
		// nothing.
		d.log.Warn("the sandbox's network is not to be had again", "sandbox", ref, "error", err)
	}
	return b, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	e, err := d.conn.open(ctx)
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	id, err := d.state.ID()
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	// All containers of this state directory.
	filters := make(client.Filters).Add("label", container.LabelState+"="+id)
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, sandbox.Wrap(e.Explain(err), "list boxes", "")
	}
	var refs []string
	for _, c := range list.Items {
		if ref := c.Labels[container.LabelSandbox]; sandbox.ValidID(ref) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	e, err := d.conn.open(ctx)
	if err == nil {
		p := d.launch.platform(e)
		if _, err = p.inspect(ctx, ref); err == nil {
			err = p.Remove(ctx, ref)
		}
	}
	if driver.IsGone(err) {
		return nil
	}
	return sandbox.Wrap(err, "discard box", "")
}

// Close implements [driver.Driver]: it ends attached boxes and the server of
// workspaces.
func (d *Driver) Close() error {
	err := d.workspaces.server.Stop()
	e := d.conn.close()
	d.boxes.Release()
	if e == nil {
		return err
	}
	return errors.Join(err, e.Close())
}

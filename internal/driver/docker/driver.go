package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The engines that this package knows.
const (
	Docker = "docker"
	Podman = "podman"
)

// Options configure a Driver.
type Options struct {
	// Engine is [Docker] or [Podman]. It selects where the driver looks for the
	// engine, and the names in messages.
	Engine string
	// Host is the engine's address, like unix:///var/run/docker.sock. If it is
	// empty, the driver looks where the engine's own tools look.
	Host string
	// Runtime is the OCI runtime to request from the engine, such as runsc. Empty
	// is the engine's default.
	Runtime string
	// StateDir distinguishes the boxes of this driver from boxes of other drivers
	// on the same engine. The driver makes a file in its subdirectory "docker" or
	// "podman".
	StateDir string
	// Guest is the path of the guest's program, a static Linux binary.
	Guest string
	// Inside and Outside are for a process that is itself in a container. Inside is
	// a directory that the engine has at the path Outside, so workspaces below
	// Inside are mounted from below Outside. Outside is empty if the paths are the
	// same.
	Inside, Outside string
	// Network is the path of a program for Linux, whose main function calls
	// [network.Main] if its first argument is [network.ProcessName]. If it is
	// empty, boxes have no network.
	Network string
	// Workspaces selects where workspaces are kept. [WorkspacesDirectory] is
	// directories of this machine that the engine has as well; [WorkspacesVolume]
	// is a volume of the engine. Empty is a volume if the engine is reached by
	// network and Outside is empty, otherwise directories.
	Workspaces string
	// Registries are the only registries to fetch images from, like docker.io, at
	// any address. If it is empty, all registries at public addresses are allowed.
	Registries []string
	// Lookup resolves the names of registries; nil is this machine's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Log receives errors of background work; nil discards them.
	Log *slog.Logger
	// Getenv replaces os.Getenv in tests; nil is os.Getenv.
	Getenv func(string) string
}

// A Driver makes boxes with an engine. Its methods are safe for concurrent use.
type Driver struct {
	opts Options

	mu      sync.Mutex
	state   string // identifies the state directory to the engine; see stateID
	engine  *engine
	boxes   map[*box]bool // the boxes that hold connections
	closed  bool
	pulls   map[string]*pull
	volumes map[string]bool     // names of the volumes that are known to be filled
	lacking map[string][]string // directories that images do not have; see missing

	keeperMu sync.Mutex // held while the keeper is made
	keeper   *box       // nil until the first use; guarded by keeperMu
}

var _ driver.Driver = (*Driver)(nil)

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
	return &Driver{
		opts:    opts,
		boxes:   make(map[*box]bool),
		pulls:   make(map[string]*pull),
		volumes: make(map[string]bool),
		lacking: make(map[string][]string),
	}, nil
}

// Info implements [driver.Driver]. The driver does not pause boxes. An idle
// container costs no CPU, and these engines need more time to freeze and thaw it
// than a run takes.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name:     d.opts.Engine,
		Isolates: true,
		// The name of a runtime does not prove which program is behind it.
		Boundary: sandbox.BoundaryContainer,
		Features: driver.Features{
			Incidents: true, Detach: true, Network: d.canNetwork(), Workspace: true, Images: true, EngineImages: true, Ports: true,
		},
	}
}

// Probe implements [driver.Driver].
func (d *Driver) Probe(ctx context.Context) error {
	e, err := d.connect(ctx)
	if err != nil {
		return err
	}
	program, err := e.guestProgram(d.opts.Guest)
	if err != nil {
		return err
	}
	return program.Close()
}

// connect returns the engine. It looks for it at the first call.
func (d *Driver) connect(ctx context.Context) (*engine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, sandbox.Errorf(sandbox.Conflict, "driver is closed")
	}
	if d.engine != nil {
		return d.engine, nil
	}
	e, err := findEngine(ctx, &d.opts)
	if err != nil {
		return nil, err
	}
	d.engine = e
	return e, nil
}

// Labels of this package's containers and volumes.
const (
	labelState   = "glovebox.state"   // identifies the state directory; see stateID
	labelSandbox = "glovebox.sandbox" // the sandbox's identifier
	labelSpec    = "glovebox.spec"    // the spec, as JSON; it has no secrets
	labelOwner   = "glovebox.owner"   // host and pid of the process that made it, for display
	labelLease   = "glovebox.lease"   // "owner": it ends with its creator; "server": not
	labelRole    = "glovebox.role"    // the role of a container or volume that is no box
	roleFiller   = "filler"           // a container that fills a volume
	roleNetwork  = "network"          // a container that carries a box's packets
)

// stateID returns the identity of this state directory. It distinguishes the
// driver's boxes on an engine that others share, perhaps from other machines.
func (d *Driver) stateID() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != "" {
		return d.state, nil
	}
	dir := filepath.Join(d.opts.StateDir, d.opts.Engine)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "id")
	text, err := atomicfile.Once(path, []byte(strings.ToLower(rand.Text())), 0o600)
	if err != nil {
		return "", fmt.Errorf("read identity of the state directory: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if len(id) < 26 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", sandbox.Errorf(sandbox.Internal, "%s does not hold an identity", path)
	}
	d.state = id
	return id, nil
}

// ours returns the filter that selects all containers of this state directory.
func (d *Driver) ours() (client.Filters, error) {
	id, err := d.stateID()
	if err != nil {
		return nil, err
	}
	return make(client.Filters).Add("label", labelState+"="+id), nil
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	b, err := d.attach(ctx, ref)
	if err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	return b, nil
}

func (d *Driver) attach(ctx context.Context, ref string) (*box, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := d.inspect(ctx, e, ref)
	if err != nil {
		return nil, err
	}
	if c.State == nil || !c.State.Running {
		return nil, driver.ErrGone
	}
	spec, err := decodeSpec(c.Config.Labels[labelSpec])
	if err != nil {
		return nil, err
	}
	b := d.newBox(e, spec)
	if err := b.takeOverNetwork(ctx, c.Image); err != nil {
		// The box continues without a network; its receipt says that it reaches
		// nothing.
		d.opts.Log.Warn("the sandbox's network is not to be had again", "sandbox", ref, "error", err)
	}
	return b, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	e, err := d.connect(ctx)
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	filters, err := d.ours()
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, sandbox.Wrap(e.explain(err), "list boxes", "")
	}
	var refs []string
	for _, c := range list.Items {
		if ref := c.Labels[labelSandbox]; sandbox.ValidID(ref) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	return refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	e, err := d.connect(ctx)
	if err == nil {
		_, err = d.inspect(ctx, e, ref)
	}
	if err == nil {
		err = d.remove(ctx, e, ref)
	}
	if driver.IsGone(err) {
		return nil
	}
	return sandbox.Wrap(err, "discard box", "")
}

// Close implements [driver.Driver]: it ends attached boxes and the keeper.
func (d *Driver) Close() error {
	d.keeperMu.Lock()
	k := d.keeper
	d.keeper = nil
	d.keeperMu.Unlock()
	var kerr error
	if k != nil {
		kerr = k.Destroy(context.Background())
	}
	d.mu.Lock()
	d.closed = true
	boxes, e := slices.Collect(maps.Keys(d.boxes)), d.engine
	d.engine = nil
	d.mu.Unlock()
	for _, b := range boxes {
		b.release()
	}
	if e == nil {
		return kerr
	}
	return errors.Join(kerr, e.Close())
}

// callTime bounds a call to the engine that does not end with the caller's context.
const callTime = time.Minute

// steady returns a context that outlives ctx, for at most callTime. If the call
// were cancelled, the engine would complete it anyway, and its result would leak.
func steady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/doctor"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Name is the driver's name.
const Name = "kubernetes"

// DefaultStartTimeout is how long a Pod may take to start.
const DefaultStartTimeout = 2 * time.Minute

// Options configure a Driver.
type Options struct {
	// Kubeconfig is a file with clusters and credentials. If it is empty, they are
	// where kubectl looks for them, or those of the Pod in which the server runs.
	Kubeconfig string
	// Context is the context of the kubeconfig; empty is its current one.
	Context string
	// Namespace is where Pods are made; empty is that of the context.
	Namespace string
	// RuntimeClass is the runtime class of sandboxes, whose runtime has a kernel of
	// its own, such as gVisor. If it is empty, AllowContainer must be set.
	RuntimeClass string
	// AllowContainer accepts sandboxes that share the kernel of their node.
	AllowContainer bool
	// GuestImage is the image that installs the guest: that of this version of
	// Glovebox, by a name under which the nodes can pull it.
	GuestImage string
	// PullSecrets are names of Secrets with credentials for registries.
	PullSecrets []string
	// WorkspaceClaim is the name of a PersistentVolumeClaim of the namespace, of the
	// access mode ReadWriteMany, that has the workspaces. If it is empty, the server
	// has them, and copies them.
	WorkspaceClaim string
	// Direct has the driver connect to the addresses of Pods, and not by the API server.
	Direct bool
	// StartTimeout is how long a Pod may take to start; 0 is [DefaultStartTimeout].
	StartTimeout time.Duration
	// Network is the path of a program for Linux, whose main function calls
	// [network.Main] if its first argument is [network.ProcessName]. If it is empty,
	// boxes have no network.
	Network string
	// StateDir distinguishes the boxes of this driver from boxes of other drivers in
	// the same namespace. The driver makes a file in its subdirectory "kubernetes".
	StateDir string
	// Hold is how long a guest waits for its holder; 0 is [lease.DefaultHold].
	Hold time.Duration
	// Log receives errors of background work; nil discards them.
	Log *slog.Logger
}

// check returns an error if the operator has not configured what boxes need.
func (o *Options) check() error {
	switch {
	case o.GuestImage == "":
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "kubernetes.guest_image is not set"),
			"set it to the image of this version of Glovebox, by a name under which the nodes can pull it")
	case o.RuntimeClass == "" && !o.AllowContainer:
		return container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "kubernetes.runtime_class is not set, so sandboxes would share the kernel of their node"),
			"set it to a runtime class of gVisor or Kata Containers; or accept a shared kernel: kubernetes.allow_container_boundary: true")
	}
	return nil
}

// A Driver makes boxes in a cluster. Its methods are safe for concurrent use.
type Driver struct {
	opts  Options
	conn  *connection
	state *container.StateDir
	boxes *container.Boxes
	links *direct.Links // nil if all traffic goes through the API server
	// keeper is the server of workspaces, if they are in a claim.
	keeper *container.WorkspaceServer
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Cleaner = (*Driver)(nil)
)

// New returns a driver. It does not connect yet; Probe reports whether the driver can
// be used. Errors are of kind Invalid. The caller closes the driver.
func New(opts Options) (*Driver, error) {
	if !filepath.IsAbs(opts.StateDir) {
		return nil, sandbox.Errorf(sandbox.Invalid, "state directory %q is not absolute", opts.StateDir)
	}
	opts.StartTimeout = cmp.Or(opts.StartTimeout, DefaultStartTimeout)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	d := &Driver{opts: opts, state: container.NewStateDir(opts.StateDir, Name)}
	d.boxes = container.NewBoxes(d.state, opts.Network)
	d.conn = &connection{opts: &d.opts}
	if opts.Direct {
		d.links = direct.New()
	}
	d.keeper = container.NewWorkspaceServer(d.startKeeper, opts.Log)
	return d, nil
}

// Info implements [driver.Driver]. The boundary is what the operator says of the
// runtime class: the API does not show which program is behind it.
func (d *Driver) Info() driver.Info {
	boundary := sandbox.BoundaryContainer
	if d.opts.RuntimeClass != "" && !d.opts.AllowContainer {
		boundary = sandbox.BoundaryRuntimeClass
	}
	claim := d.opts.WorkspaceClaim != ""
	return driver.Info{
		Name:     Name,
		Isolates: true,
		Boundary: boundary,
		Features: driver.Features{
			Incidents: true, Detach: true, Lease: true, Network: d.opts.canNetwork() == nil, Ports: true, Interpreter: true, OneUser: true,
			Workspace: claim, Mounts: claim, WorkspaceCopied: !claim,
		},
	}
}

// Probe implements [driver.Driver].
func (d *Driver) Probe(ctx context.Context) error {
	if err := d.opts.check(); err != nil {
		return err
	}
	a, err := d.conn.open()
	if err != nil {
		return err
	}
	if _, err := a.version(ctx, labelManager+"="+manager); err != nil {
		err = explainIn(ctx, err)
		if errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		return container.Unavailable(err, "%s", sandbox.HintOf(err))
	}
	return nil
}

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	b, err := d.create(ctx, spec)
	if err != nil {
		return nil, sandbox.Wrap(err, "create box", spec.ID)
	}
	return b, nil
}

func (d *Driver) platform(a *api) *platform {
	return &platform{api: a, conn: d.conn, state: d.state, links: d.links}
}

func (d *Driver) tunnel(p *platform, ref string) *tunnel {
	return &tunnel{platform: p, ref: ref, class: d.opts.RuntimeClass}
}

// Attach implements [driver.Driver].
func (d *Driver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	b, err := d.attach(ctx, ref)
	if err != nil {
		return nil, sandbox.Wrap(err, "attach to box", "")
	}
	return b, nil
}

// attach returns a box. It reaches the guest, because the Pod of a guest that has
// just ended still says that it runs.
func (d *Driver) attach(ctx context.Context, ref string) (*container.Box, error) {
	a, err := d.conn.open()
	if err != nil {
		return nil, err
	}
	p := d.platform(a)
	pod, err := p.inspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !podstate.Of(pod, time.Now()).Running || pod.DeletionTimestamp != nil {
		return nil, driver.ErrGone
	}
	rec, err := container.DecodeRecord(pod.Annotations)
	if err != nil {
		return nil, err
	}
	b := d.boxes.Add(p, rec)
	if err := b.Answer(ctx); err != nil {
		b.Release()
		return nil, err
	}
	if err := b.TakeOverNetwork(ctx, d.tunnel(p, ref)); err != nil {
		// The box continues without a network; its receipt says that it reaches
		// nothing.
		d.opts.Log.Warn("the sandbox's network is not to be had again", "sandbox", ref, "error", err)
	}
	return b, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]string, error) {
	a, err := d.conn.open()
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	id, err := d.state.ID()
	if err != nil {
		return nil, sandbox.Wrap(err, "list boxes", "")
	}
	var refs []string
	err = a.list(ctx, container.LabelState+"="+id, func(pod *corev1.Pod) {
		if ref := pod.Labels[container.LabelSandbox]; sandbox.ValidID(ref) && !doctor.IsProbe(pod, time.Now()) {
			refs = append(refs, ref)
		}
	})
	if err != nil {
		return nil, sandbox.Wrap(explainIn(ctx, err), "list boxes", "")
	}
	slices.Sort(refs)
	return refs, nil
}

// Discard implements [driver.Driver].
func (d *Driver) Discard(ctx context.Context, ref string) error {
	d.links.Forget(ref)
	a, err := d.conn.open()
	if err == nil {
		p := d.platform(a)
		if _, err = p.inspect(ctx, ref); err == nil {
			err = p.Remove(ctx, ref)
		}
	}
	if driver.IsGone(err) {
		return nil
	}
	return sandbox.Wrap(err, "discard box", "")
}

// leftoverAge is the age from which the ended Pod of another state directory counts as
// a leftover.
const leftoverAge = 10 * time.Minute

// Leftovers implements [driver.Cleaner]. The leftovers are the Pods of any state
// directory that have ended, except those of this driver's own.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	a, err := d.conn.open()
	if err != nil {
		return nil, sandbox.Wrap(err, "look for leftovers", "")
	}
	id, err := d.state.ID()
	if err != nil {
		return nil, sandbox.Wrap(err, "look for leftovers", "")
	}
	var names []string
	err = a.list(ctx, labelManager+"="+manager+","+container.LabelState+"!="+id, func(pod *corev1.Pod) {
		if podstate.IsOver(pod, time.Now()) && time.Since(pod.CreationTimestamp.Time) > leftoverAge {
			names = append(names, pod.Name)
		}
	})
	errs := []error{explainIn(ctx, err)}
	var found []string
	for _, name := range names {
		if remove {
			if err := a.remove(ctx, name, endTime); err != nil {
				errs = append(errs, explainIn(ctx, err))
				continue
			}
		}
		found = append(found, fmt.Sprintf("Pod %s in namespace %s", name, a.namespace))
	}
	return found, sandbox.Wrap(errors.Join(errs...), "look for leftovers", "")
}

// Close implements [driver.Driver]: it ends attached boxes.
func (d *Driver) Close() error {
	err := d.keeper.Stop()
	d.boxes.Release()
	d.conn.close()
	return sandbox.Wrap(err, "close driver", "")
}

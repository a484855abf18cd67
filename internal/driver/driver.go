// Package driver is the contract between the engine and the drivers, which make
// sandboxes.
//
// A [Driver] only makes boxes. A box is an isolated environment whose first process
// is the guest; the driver hands out byte streams to that guest. The guest
// implements processes, files, terminals and interpreters, so they behave the same
// on every driver. The engine implements the rules: validation, ownership,
// deadlines, leases, output and verdicts. A driver therefore has no policy: it
// either does what a complete, valid [Spec] says or refuses it.
//
// # Lifecycle
//
// A box exists from the beginning of Create until Destroy returns. If Create fails
// or its context ends, the driver has already destroyed the partial box. An
// attached box does not outlive the process that created it, even if that process
// is killed. A detached box outlives that process; a later process finds it with
// Attach, by the reference that Box.Ref returned.
//
// Package drivertest defines the contract: a driver is correct if it passes that
// suite. Every package may import this one for its types. Only the engine, the pool
// and the drivers call drivers and boxes.
//
// Methods of Driver and Box are safe for concurrent use.
package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ErrUnavailable is wrapped by errors of Probe when the driver cannot be used on
// this machine. Errors of Create wrap it if the machine changed after Probe.
// [sandbox.HintOf] returns the remedy. It is of kind [sandbox.Unavailable].
var ErrUnavailable = sandbox.Errorf(sandbox.Unavailable, "driver not usable here")

// NoNetwork returns the error, of kind [sandbox.Unsupported], of a box that has no
// network to ask or change.
func NoNetwork() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: the sandbox was made without one, and cannot get one now"),
		"make another with the network that it needs")
}

// ErrGone is wrapped by errors of Box methods, and of Attach, when the box no
// longer exists or its guest died. It is of kind [sandbox.NotFound].
var ErrGone = sandbox.Errorf(sandbox.NotFound, "box is gone")

// A Driver makes boxes of one kind.
type Driver interface {
	// Info returns constant facts about the driver. It does no work.
	Info() Info

	// Probe reports whether boxes can be made now. It examines the machine and
	// leaves nothing behind. The error wraps [ErrUnavailable] and carries a hint
	// with the remedy.
	Probe(ctx context.Context) error

	// Create starts a box and returns when its guest can be dialled. The spec is
	// valid and complete; the driver does not change it. If the driver cannot
	// enforce a limit that is not in spec.AllowUnenforced, Create starts nothing.
	// It then fails with [sandbox.Unsupported] and a hint.
	Create(ctx context.Context, spec *Spec) (Box, error)

	// Attach returns a box that this or an earlier process created detached, or
	// attached if its creator still lives. The error wraps [ErrGone] if no such box
	// is alive.
	Attach(ctx context.Context, ref string) (Box, error)

	// List returns the references of all boxes of this driver's state directory
	// that still have a process, file, mount or container. It includes incomplete
	// boxes, and boxes of any creator, because the reaper must examine all of them.
	// Discarding every reference leaves nothing.
	List(ctx context.Context) ([]string, error)

	// Discard removes the remains of a box that cannot be attached. It is
	// idempotent, and does nothing for a reference that List would not return.
	Discard(ctx context.Context, ref string) error

	// Close frees the driver's own resources. Detached boxes continue to run;
	// attached boxes may end.
	Close() error
}

// Info holds constant facts about a driver.
type Info struct {
	// Name is the driver's name in configuration and receipts, such as "gvisor".
	Name string
	// Isolates reports whether code in a box cannot reach the host. It is false
	// only for the driver of the tests.
	Isolates bool
	// Boundary is the barrier between code in a box and the machine that runs it.
	Boundary   sandbox.Boundary
	OpaqueRefs bool // another system makes the references: they lack Spec.ID
	// Features are the optional interfaces that the driver's boxes implement.
	Features Features
}

// Features declares optional abilities. The suite checks that declared abilities
// work and that the driver refuses all others.
type Features struct {
	Pause bool // boxes implement Pauser
	// ColdPause, which requires Pause, means that a pause takes seconds and ends
	// the requests that are under way on streams. The engine pauses only
	// hibernating sandboxes then.
	ColdPause bool
	// Save, which requires Pause, means that boxes implement Saver.
	Save bool
	// Snapshot means that the driver implements SnapshotKeeper, and its boxes
	// Snapshotter.
	Snapshot bool
	// Rollback, which requires Save and Snapshot, means that boxes implement Rollbacker.
	Rollback bool
	// DiskSnapshot means that the driver implements SnapshotKeeper, and its boxes
	// DiskSnapshotter.
	DiskSnapshot bool
	Restart      bool // boxes implement Restarter
	Incidents    bool // boxes implement Reporter
	Usage        bool // boxes implement Meter
	Detach       bool // Spec.Detached is honoured
	// Lease, which requires Detach, means that boxes implement Leaser.
	Lease     bool
	Network   bool // boxes may have a network other than none, and implement Networker
	Workspace bool // Spec.Workspace is honoured
	Unnamed   bool // with Workspace: boxes implement UnnamedLister
	Mounts    bool // with Workspace: Spec.Mounts is honoured
	// WorkspaceCopied, without Workspace, means that a box has an empty directory
	// at [sandbox.WorkDir]. The caller can copy files into it and out of it.
	WorkspaceCopied bool
	// OneUser means that a box has one user, which is not root: what a caller asks for
	// as another user runs as this one. Programs may then end the guest.
	OneUser    bool
	Ports      bool // the guest can connect to listeners in the box
	Containers bool // Spec.Containers is honoured
	// Interpreter means that programs in the box reach its contexts by E2B's
	// protocol at [InterpreterAddress], once a client has used that protocol.
	Interpreter bool
	// Metered boxes cost money while they exist, so none is made before a caller
	// asks for it.
	Metered bool
	Host    bool // Spec.Image may be sandbox.ImageHost
	Images  bool // the driver implements ImageKeeper
	// EngineImages, which requires Images, means that a container engine keeps the
	// images. The operator adds images to it without Glovebox.
	EngineImages bool
	// Remote boxes run on other machines. [sandbox.ImageHost] is then a system of
	// the driver's own, and facts about this machine do not apply to it.
	Remote bool
}

// InterpreterAddress is where programs in a box look for E2B's code interpreter.
const InterpreterAddress = "127.0.0.1:49999"

// SudoDir is where programs in a box find the command sudo, once a client has used
// E2B's protocol: a directory that login shells have in their PATH. A driver names it
// to the guest if the guest can write it.
const SudoDir = "/usr/local/bin"

// A Spec is a complete order for a box.
type Spec struct {
	// ID is the sandbox's identifier; sandbox.ValidID accepts it. No other box of
	// the driver has it.
	ID string
	// Image is [sandbox.ImageHost] or a reference that the driver resolves.
	Image string
	// Hostname is the host name inside the box.
	Hostname string
	// Limits is complete and within the operator's maxima.
	Limits sandbox.Limits
	// Network is the policy to enforce, in canonical form; NetworkTerms are the
	// operator's conditions for it. A driver that cannot enforce the policy refuses
	// it with [sandbox.Unsupported] and starts nothing.
	Network      sandbox.Network
	NetworkTerms sandbox.NetworkTerms
	// Secrets are inserted into requests by the box's network. Their values never
	// appear in the box, and the driver does not store them. Header rules are among
	// them.
	Secrets []sandbox.Secret
	// Workspace is the absolute path of a directory on this machine; a
	// [WorkspaceKeeper] may define the path differently. The box has the directory
	// at [sandbox.WorkDir], readable and writable. If Workspace is "", the box has
	// an empty directory there. Several boxes may share one workspace. The
	// directory exists already. It belongs to [sandbox.UserUID] if this process is
	// root, otherwise to this process's user. The driver does not change the owner
	// or the content.
	//
	// In the box, the directory belongs to the user that programs run as,
	// regardless of the user of this process. A program's data is on the host when
	// its write returns. It remains there after the box, the driver or this process
	// has ended. The directory cannot grant rights on the host: the box refuses
	// set-user-ID bits, set-group-ID bits and device nodes.
	Workspace string
	// Mounts are further directories that the box has, by the rules of Workspace, at
	// most [sandbox.MaxVolumes]. A spec without a workspace has none, and a box with mounts
	// cannot be saved. A driver that does not declare
	// [Features].Mounts refuses them with [sandbox.Unsupported].
	Mounts []Mount `json:",omitempty"`
	// Writable lists directories that a box must be able to write, unless its image
	// has them. The paths are absolute, and none is below another.
	Writable []string `json:",omitempty"`
	// Containers lets programs of the box run containers of their own, such as
	// dockerd's: the box has control groups, programs find the command sudo, and root
	// of the box may mount file systems and configure the box's network. None of it
	// applies outside the box, and all limits stay in force.
	Containers bool `json:",omitempty"`
	// Detached boxes outlive the process that created them.
	Detached bool
	// Lease is the lease of a detached box from the beginning of Create, as by
	// [Leaser]; nil is none. A driver without leases ignores it.
	Lease *Lease `json:",omitempty"`
	// Streams is the number of streams that the caller will dial soon; 0 means 1.
	// It is a hint: a driver may open these streams when it creates the box.
	Streams int
	// SharesSnapshot lets the driver keep the saved state of a box from
	// [SnapshotKeeper].CreateFrom as its difference from the snapshot, if it
	// compresses states. It is for snapshots that many boxes are made of: the space of
	// the snapshot stays in use until the last of them has ended, also when the snapshot
	// is removed. [BuildKeeper].Bases counts it.
	SharesSnapshot bool `json:",omitempty"`
	// AllowUnenforced names limits that the operator accepts unenforced.
	AllowUnenforced []sandbox.ControlName
}

// A Box is one sandbox, as its driver sees it.
type Box interface {
	// Ref identifies the box to Attach and Discard, in this process and in later ones.
	// It contains Spec.ID, unless Info.OpaqueRefs is true. It contains no secrets.
	Ref() string

	// Dial opens a new byte stream to the guest, on which the guest serves HTTP/1.1
	// and cleartext HTTP/2. The caller closes it, which frees it on both sides. A
	// paused box must be resumed first. The error wraps [ErrGone] if the guest no
	// longer exists.
	Dial(ctx context.Context) (net.Conn, error)

	// Receipt reads every control back from the mechanism that enforces it.
	Receipt(ctx context.Context) (sandbox.Receipt, error)

	// Destroy ends every process of the box and frees its resources. It returns
	// when no process and no resource is left. It is idempotent, also while another
	// Destroy runs, and completes as much as it can even if ctx ends.
	Destroy(ctx context.Context) error
}

// A Pauser is a box whose programs can be paused, so that they use no CPU, and
// resumed. Streams stay open meanwhile, but the guest answers nothing. With
// [Features].ColdPause, requests under way on them fail. Pausing a paused box and
// resuming a running one have no effect.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Incidents are the counts of the enforcing mechanism since the box began.
type Incidents struct {
	// Alive reports whether the guest still exists.
	Alive bool
	// MemoryKills counts OOM kills, of single processes or of the whole box.
	MemoryKills int
	// ProcessRefusals counts forks refused because of the process limit.
	ProcessRefusals int
}

// A Reporter is a box that can say why its processes died. For a short time after
// the guest died, until Destroy, it still answers.
type Reporter interface {
	Incidents(ctx context.Context) (Incidents, error)
}

// Usage is what a box has used since it began, as the host kernel counts it.
type Usage struct {
	// CPU is the CPU time of all processes of the box, with those around its programs.
	CPU time.Duration `json:"cpu"`
	// Memory is the memory in use, in bytes. It is 0 where it is not known, and for a
	// box that is saved.
	Memory int64 `json:"memory,omitempty"`
}

// A Meter is a box whose usage the host kernel counts. The CPU time never becomes smaller.
// It also answers while the box is paused, and after its guest died. After Destroy it
// may answer, and then with the CPU time of the whole life of the box.
type Meter interface {
	// Usage returns the counts. The error wraps [sandbox.Unsupported] if this machine
	// does not count the usage of this box.
	Usage(ctx context.Context) (Usage, error)
}

// A LastMeter is a driver that knows what a box has used whose processes have ended,
// until Discard.
type LastMeter interface {
	// LastUsage returns the counts of the box. The error wraps [ErrGone] if nothing is
	// known of it, and [sandbox.Unsupported] if nothing counted its usage.
	LastUsage(ctx context.Context, ref string) (Usage, error)
}

// A Networker is a box whose network can be observed and changed.
type Networker interface {
	// Traffic returns the counts since the box began, and the records of ended
	// connections whose number is above after.
	Traffic(ctx context.Context, after int64) (sandbox.Traffic, error)
	// SetNetwork puts another policy in force, in canonical form, and ends the
	// connections that it does not allow. If the box was made without a network,
	// the error wraps [sandbox.Unsupported]. Rules replace the box's header rules;
	// nil keeps them. If the box was made without secrets and header rules, and
	// there are rules, the error wraps [sandbox.Unsupported].
	SetNetwork(ctx context.Context, n sandbox.Network, rules []sandbox.Secret) error
	// Authority returns the PEM certificate of the authority that programs in the
	// box must trust for the hosts of its secrets. It is nil if there is none.
	Authority(ctx context.Context) ([]byte, error)
}

// A BoxWrapper wraps another box and has the abilities of that box in addition to
// its own.
type BoxWrapper interface {
	Unwrap() Box
}

// as returns the ability T of a box, or of the box that it wraps.
func as[T any](b Box) (ability T, ok bool) {
	for {
		if ability, ok = b.(T); ok {
			return ability, true
		}
		w, wraps := b.(BoxWrapper)
		if !wraps {
			return ability, false
		}
		b = w.Unwrap()
	}
}

// Pause pauses b if it can be paused, and reports whether it did.
func Pause(ctx context.Context, b Box) (bool, error) {
	p, ok := as[Pauser](b)
	if !ok {
		return false, nil
	}
	if err := p.Pause(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// Resume resumes b, which [Pause] paused.
func Resume(ctx context.Context, b Box) error {
	p, ok := as[Pauser](b)
	if !ok {
		return nil
	}
	return p.Resume(ctx)
}

// SetLease sets the lease of b if b can end by itself, and reports whether it can.
func SetLease(ctx context.Context, b Box, l Lease) (bool, error) {
	c, ok := as[Leaser](b)
	if !ok {
		return false, nil
	}
	err := c.SetLease(ctx, l)
	if errors.Is(err, sandbox.Unsupported) { // by a helper process of an earlier version
		return false, nil
	}
	return err == nil, err
}

// ReadIncidents returns the incidents of b; ok is false if b does not report any.
func ReadIncidents(ctx context.Context, b Box) (in Incidents, ok bool, err error) {
	r, ok := as[Reporter](b)
	if !ok {
		return Incidents{}, false, nil
	}
	in, err = r.Incidents(ctx)
	return in, err == nil, err
}

// ReadUsage returns the usage of b; ok is false if nothing counts it.
func ReadUsage(ctx context.Context, b Box) (u Usage, ok bool, err error) {
	m, ok := as[Meter](b)
	if !ok {
		return Usage{}, false, nil
	}
	u, err = m.Usage(ctx)
	if errors.Is(err, sandbox.Unsupported) {
		return Usage{}, false, nil
	}
	return u, err == nil, err
}

// ReadLastUsage returns the usage of a box of d that Attach reports gone; ok is false if
// nothing counted it.
func ReadLastUsage(ctx context.Context, d Driver, ref string) (u Usage, ok bool, err error) {
	m, ok := Ability[LastMeter](d)
	if !ok {
		return Usage{}, false, nil
	}
	u, err = m.LastUsage(ctx, ref)
	if errors.Is(err, sandbox.Unsupported) || IsGone(err) {
		return Usage{}, false, nil
	}
	return u, err == nil, err
}

// ReadUnnamed returns the files without a name that b holds open in its workspace;
// ok is false if its driver cannot list them.
func ReadUnnamed(ctx context.Context, b Box) (files []UnnamedFile, ok bool, err error) {
	l, ok := as[UnnamedLister](b)
	if !ok {
		return nil, false, nil
	}
	files, err = l.UnnamedFiles(ctx)
	return files, err == nil, err
}

// ReadTraffic returns the traffic of b; ok is false if b has no network.
func ReadTraffic(ctx context.Context, b Box, after int64) (t sandbox.Traffic, ok bool, err error) {
	n, ok := as[Networker](b)
	if !ok {
		return sandbox.Traffic{}, false, nil
	}
	t, err = n.Traffic(ctx, after)
	return t, err == nil, err
}

// ReadAuthority returns the certificate that programs in b must trust for its
// secrets to work, or nil if b has none.
func ReadAuthority(ctx context.Context, b Box) ([]byte, error) {
	n, ok := as[Networker](b)
	if !ok {
		return nil, nil
	}
	return n.Authority(ctx)
}

// SetNetwork changes the policy of b, and its header rules unless they are nil. The
// error wraps [sandbox.Unsupported] if
// it cannot be changed.
func SetNetwork(ctx context.Context, b Box, n sandbox.Network, rules []sandbox.Secret) error {
	c, ok := as[Networker](b)
	if !ok {
		return sandbox.Errorf(sandbox.Unsupported, "network: this driver cannot change it")
	}
	return c.SetNetwork(ctx, n, rules)
}

// An ImageKeeper is a driver that keeps images. All methods take references in the
// form that users write. Errors are of kind NotFound if an image cannot be
// obtained.
type ImageKeeper interface {
	// PullImage fetches an image, so that Create finds it. It continues a pull that
	// an earlier call began.
	PullImage(ctx context.Context, order ImagePull) (sandbox.Image, error)
	// ImageName returns the name under which Images lists the image that PullImage
	// fetches for ref.
	ImageName(ref string) (string, error)
	// LoadImages loads all images of an archive, or none.
	LoadImages(ctx context.Context, from ImageArchive, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error)
	// Images lists the images of this driver. Image returns one of them, by name,
	// digest or the beginning of its ID.
	Images(ctx context.Context) ([]sandbox.Image, error)
	Image(ctx context.Context, ref string) (sandbox.Image, error)
	// RemoveImage removes one image. PruneImages removes the images that were not
	// used for the duration unused, or all images, and the data that no image uses.
	// Sandboxes continue to run.
	RemoveImage(ctx context.Context, ref string) (freed int64, err error)
	PruneImages(ctx context.Context, unused time.Duration, all bool) (names []string, freed int64, err error)
}

// An ImagePull is an order to fetch an image.
type ImagePull struct {
	Ref string
	// Missing makes the pull do nothing if the image is here already.
	Missing bool
	// Anywhere lets the registry have any address, for requests of the operator.
	// Without it, the registry must have a public address or be in the operator's
	// configuration.
	Anywhere bool
	// Progress, if not nil, receives the progress of the pull.
	Progress func(sandbox.ImageProgress)
}

// An ImageBuilder is an ImageKeeper that also builds images.
type ImageBuilder interface {
	// BuildImage builds an image from a Dockerfile. It writes the output of the
	// build to said.
	BuildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error)
}

// An ImageExtender is an ImageKeeper that derives images from others, for callers
// that build images in boxes.
type ImageExtender interface {
	// ExtendImage makes an image from an existing one, or from
	// [sandbox.ImageScratch]. Create also accepts ImageScratch as the image of a
	// box.
	ExtendImage(ctx context.Context, order ImageExtension) (sandbox.Image, error)
}

// An ImageExtension is an order for an image that adds files to those of another.
type ImageExtension struct {
	// Base and Name are references; By describes how the image was made, for
	// display.
	Base, Name, By string
	// Layer, if not nil, is an uncompressed layer above the base's.
	Layer io.Reader
	// Config replaces the configuration of the base.
	Config sandbox.ImageConfig
}

// An ImageBuild is an order for an image.
type ImageBuild struct {
	// Context is an archive of a Dockerfile and of the files that it copies; Name
	// is the name of the new image.
	Context io.Reader
	Name    string
	// Args are the build's arguments. Network is the network mode of the build's
	// programs, as the container engine defines it; empty is the container engine's
	// default.
	Args    map[string]string
	Network string
}

// An ImageArchive is a source of images: the output of docker save, or an archive
// or a directory in OCI layout.
type ImageArchive struct {
	// Path is a file or a directory; if it is empty, the archive is read from
	// Reader.
	Path   string
	Reader io.Reader
	// Name, if not empty, is the name for the only image of the archive.
	Name string
}

// A Wrapper wraps another driver and has the abilities of that driver in addition
// to its own.
type Wrapper interface {
	Unwrap() Driver
}

// Images returns d as a keeper of images, or an error of kind Unsupported.
func Images(d Driver) (ImageKeeper, error) {
	if w, ok := d.(Wrapper); ok {
		return Images(w.Unwrap())
	}
	if k, ok := d.(ImageKeeper); ok && d.Info().Features.Images {
		return k, nil
	}
	return nil, sandbox.Errorf(sandbox.Unsupported, "driver %s keeps no images", d.Info().Name)
}

// Ability returns the ability T of a driver, or of the driver that it wraps.
func Ability[T any](d Driver) (ability T, ok bool) {
	for {
		if ability, ok = d.(T); ok {
			return ability, true
		}
		w, wraps := d.(Wrapper)
		if !wraps {
			return ability, false
		}
		d = w.Unwrap()
	}
}

// IsGone reports whether err means that a box no longer exists.
func IsGone(err error) bool { return errors.Is(err, ErrGone) }

// A WorkspaceKeeper is a driver that keeps workspaces on another machine. Its boxes
// run there, so they cannot mount directories of this machine.
type WorkspaceKeeper interface {
	// KeepsWorkspaces reports whether this driver keeps workspaces, and in which
	// directory of the other machine. [Spec.Workspace] is then a directory below
	// dir.
	KeepsWorkspaces() (dir string, ok bool)
	// DialWorkspaces opens a stream to the workspace server, which speaks the
	// protocol of package workspace's Remote.
	DialWorkspaces(ctx context.Context) (net.Conn, error)
}

// A Cleaner is a driver whose boxes may leave resources behind that List does not
// return: their state directory is gone, or they belong to no box.
type Cleaner interface {
	// Leftovers returns the names of unused resources. If remove is set, it removes
	// them and returns the names of the removed ones; the error describes the rest.
	// A resource that a living process may be about to use is not a leftover.
	Leftovers(ctx context.Context, remove bool) ([]string, error)
}

// Leftovers calls the method of that name if d or the driver that it wraps is a
// [Cleaner]; other drivers have no leftovers.
func Leftovers(ctx context.Context, d Driver, remove bool) ([]string, error) {
	if w, ok := d.(Wrapper); ok {
		return Leftovers(ctx, w.Unwrap(), remove)
	}
	if c, ok := d.(Cleaner); ok {
		return c.Leftovers(ctx, remove)
	}
	return nil, nil
}

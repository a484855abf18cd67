// Package driver is the contract between the engine and what makes sandboxes.
//
// A [Driver] only makes boxes: it starts an isolated environment whose first
// process is the guest, and hands out byte streams to that guest. Processes,
// files, terminals and interpreters are the guest's and so behave the same on
// every driver. The rules (validation, ownership, deadlines, leases, output,
// verdicts) are the engine's. A driver therefore owns no policy: it does what
// a complete, valid [Spec] says, or refuses.
//
// # Lifecycle
//
// A box exists from the moment Create begins until Destroy returns. If Create
// fails or its context ends, the driver has already destroyed what it began.
// An attached box lives no longer than the process that created it, even when
// that process is killed; a detached box outlives it and is found again with
// Attach, by the reference that Box.Ref returned.
//
// The definition of a driver is package drivertest: what passes its suite is
// one. Every package may import this one for its types; only the engine, the
// pool and the drivers act on them.
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

// ErrUnavailable is wrapped by the error of Probe, and of Create where the
// machine changed after Probe, when the driver cannot be used at all here.
// [sandbox.HintOf] tells the remedy. It is of kind [sandbox.Unavailable].
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

	// Probe reports whether boxes can be made now, by looking at the machine
	// but without leaving anything behind. The error wraps [ErrUnavailable]
	// and carries a hint that names what to do.
	Probe(ctx context.Context) error

	// Create starts a box and returns when its guest can be dialled. The spec
	// is valid and complete; the driver does not change it. A limit that
	// cannot be enforced and is not in spec.AllowUnenforced makes it fail
	// with [sandbox.Unsupported] and a hint, before anything is started.
	Create(ctx context.Context, spec *Spec) (Box, error)

	// Attach returns a box that this or an earlier process created detached
	// (or attached, if its creator still lives). The error wraps [ErrGone] if
	// there is none such alive.
	Attach(ctx context.Context, ref string) (Box, error)

	// List returns the references of every box of this driver's state
	// directory that still has a process, file, mount or container, whole or
	// not, whoever created it: what a reaper must look at. Destroying each by
	// Discard leaves nothing.
	List(ctx context.Context) ([]string, error)

	// Discard removes whatever is left of a box that cannot be attached. It
	// is idempotent, and does nothing for a reference that List would not
	// return.
	Discard(ctx context.Context, ref string) error

	// Close frees what the driver itself holds. Detached boxes go on running;
	// attached ones may end.
	Close() error
}

// Info holds constant facts about a driver.
type Info struct {
	// Name is what configuration and receipts call it: "gvisor".
	Name string
	// Isolates says that code in a box cannot reach the host. It is false
	// only for the driver that tests use.
	Isolates bool
	// Boundary is what stands between code in a box and the machine it is on.
	Boundary sandbox.Boundary
	// Features are the optional interfaces that the driver's boxes implement.
	Features Features
}

// Features declares optional abilities. The suite checks that what is declared
// works and what is not declared is refused.
type Features struct {
	Pause bool // boxes implement Pauser
	// ColdPause says, with Pause, that pausing takes seconds and ends what is
	// under way on streams: only sandboxes that hibernate are paused.
	ColdPause bool
	Incidents bool // boxes implement Reporter
	Detach    bool // Spec.Detached is honoured
	Network   bool // boxes may have another network than none, and implement Networker
	Workspace bool // Spec.Workspace is honoured
	Unnamed   bool // with Workspace: boxes implement UnnamedLister
	// WorkspaceCopied says, without Workspace, that boxes have an empty
	// directory at [sandbox.WorkDir], which others can copy files to and from.
	WorkspaceCopied bool
	Ports           bool // the guest connects to what listens in the box
	// Metered boxes cost money while they exist: none is made that nobody
	// asked for.
	Metered bool
	Host    bool // Spec.Image may be sandbox.ImageHost
	Images  bool // the driver implements ImageKeeper
	// EngineImages says, with Images, that an engine keeps them, to which the
	// operator adds without Glovebox.
	EngineImages bool
	// Remote boxes are on other machines: sandbox.ImageHost is a system of the
	// driver's own then, and what this machine has says nothing of it.
	Remote bool
}

// A Spec is a complete order for a box.
type Spec struct {
	// ID is the sandbox's identifier, of the form sandbox.ValidID accepts.
	// No other box of the driver has it.
	ID string
	// Image is [sandbox.ImageHost] or a reference that the driver resolves.
	Image string
	// Hostname is what the box calls itself.
	Hostname string
	// Limits is complete and within the operator's maxima.
	Limits sandbox.Limits
	// Network is the policy to enforce, in canonical form, and NetworkTerms
	// are on what terms. A driver that cannot enforce a policy refuses it with
	// [sandbox.Unsupported] before anything is started.
	Network      sandbox.Network
	NetworkTerms sandbox.NetworkTerms
	// Secrets are put into requests by the box's network. Their values are
	// nowhere in the box, and a driver writes them nowhere.
	Secrets []sandbox.Secret
	// Workspace is the absolute path on this machine (unless the driver is a
	// [WorkspaceKeeper] that says otherwise) of a directory that the box has at [sandbox.WorkDir], to read and write, in place of an empty
	// one; "" for none. Boxes may share one. It is there already, and belongs
	// to [sandbox.UserUID] if this process is root, else to this process's
	// user; the driver changes neither that nor what is in it.
	//
	// In the box it belongs to the user that programs run as, whoever this
	// process is. What a program wrote is at the host when its write returns,
	// and stays whatever becomes of the box, the driver or this process. What
	// the box does there gives nobody on the host a right: bits that make a
	// program run as its owner are refused, and so are devices.
	Workspace string
	// Writable are directories that a box has to be able to write, unless its
	// image has them: absolute, and not one below another.
	Writable []string `json:",omitempty"`
	// Detached boxes outlive the process that created them.
	Detached bool
	// Streams is how many streams the caller is about to dial; 0 is one. It is
	// a hint: a driver that can opens them with the box.
	Streams int
	// AllowUnenforced names limits that the operator accepts unenforced.
	AllowUnenforced []sandbox.ControlName
}

// A Box is one sandbox, seen from its driver.
type Box interface {
	// Ref returns a text that identifies the box to Attach and Discard, in
	// this process and in later ones. It has no secrets.
	Ref() string

	// Dial opens a fresh byte stream to the guest, on which the guest serves
	// HTTP/1.1 and cleartext HTTP/2. Closing it frees it on both sides. A
	// paused box must be resumed first. The error wraps [ErrGone] if the
	// guest is not there any more.
	Dial(ctx context.Context) (net.Conn, error)

	// Receipt reads every control back from whatever enforces it.
	Receipt(ctx context.Context) (sandbox.Receipt, error)

	// Destroy ends every process of the box and frees all it had. It returns
	// when nothing runs and nothing is left. It is idempotent, also while
	// another Destroy is at work, and finishes what it can even if ctx ends.
	Destroy(ctx context.Context) error
}

// A Pauser is a box that can be stopped where it stands, so that it takes no
// CPU, and resumed. Streams stay open meanwhile; nothing is answered. With
// [Features].ColdPause requests that are under way on them fail.
// Pausing a paused box and resuming a running one does nothing.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Incidents are what the enforcing mechanism counted since the box began.
type Incidents struct {
	// Alive says that the guest is still there.
	Alive bool
	// MemoryKills counts processes (or the whole box) killed for memory.
	MemoryKills int
	// ProcessRefusals counts forks refused because of the process limit.
	ProcessRefusals int
}

// A Reporter is a box that knows why its processes died. It also answers
// shortly after the guest died, until Destroy.
type Reporter interface {
	Incidents(ctx context.Context) (Incidents, error)
}

// An UnnamedFile is a regular file of a workspace that has no name any more, and
// stays on the disk while a program has it open.
type UnnamedFile struct {
	// Device and Inode identify the file: boxes that share a workspace can have
	// the same file open.
	Device, Inode uint64
	// Bytes is what the file takes of the disk.
	Bytes int64
}

// An UnnamedLister is a box that lists the files without a name that its programs
// keep in its workspace. It also answers while the box is paused.
type UnnamedLister interface {
	UnnamedFiles(ctx context.Context) ([]UnnamedFile, error)
}

// A Networker is a box whose network is watched and can be changed.
type Networker interface {
	// Traffic returns what was counted since the box began, and the
	// connections that ended since the one of number after.
	Traffic(ctx context.Context, after int64) (sandbox.Traffic, error)
	// SetNetwork puts another policy in force, in canonical form, and ends
	// the connections that it does not allow. A box that was made without a
	// network has none to change: the error wraps [sandbox.Unsupported].
	SetNetwork(ctx context.Context, n sandbox.Network) error
	// Authority returns the certificate, in PEM, by which programs in the box
	// have to know the hosts that its secrets are for; nil if it has none.
	Authority(ctx context.Context) ([]byte, error)
}

// A BoxWrapper is a box around another, which has the abilities that are not the
// wrapper's own.
type BoxWrapper interface {
	Unwrap() Box
}

// as returns the ability T of a box, or of the one that it wraps.
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

// ReadIncidents returns what b counted; ok is false if it cannot tell.
func ReadIncidents(ctx context.Context, b Box) (in Incidents, ok bool, err error) {
	r, ok := as[Reporter](b)
	if !ok {
		return Incidents{}, false, nil
	}
	in, err = r.Incidents(ctx)
	return in, err == nil, err
}

// ReadUnnamed returns the files without a name that b keeps in its workspace; ok is
// false if its driver cannot list them.
func ReadUnnamed(ctx context.Context, b Box) (files []UnnamedFile, ok bool, err error) {
	l, ok := as[UnnamedLister](b)
	if !ok {
		return nil, false, nil
	}
	files, err = l.UnnamedFiles(ctx)
	return files, err == nil, err
}

// ReadTraffic returns the traffic of b; ok is false if it has no network.
func ReadTraffic(ctx context.Context, b Box, after int64) (t sandbox.Traffic, ok bool, err error) {
	n, ok := as[Networker](b)
	if !ok {
		return sandbox.Traffic{}, false, nil
	}
	t, err = n.Traffic(ctx, after)
	return t, err == nil, err
}

// ReadAuthority returns the certificate that programs in b must trust for its
// secrets to work; nil if it has none.
func ReadAuthority(ctx context.Context, b Box) ([]byte, error) {
	n, ok := as[Networker](b)
	if !ok {
		return nil, nil
	}
	return n.Authority(ctx)
}

// SetNetwork changes the policy of b. The error wraps [sandbox.Unsupported] if
// it cannot be changed.
func SetNetwork(ctx context.Context, b Box, n sandbox.Network) error {
	c, ok := as[Networker](b)
	if !ok {
		return sandbox.Errorf(sandbox.Unsupported, "network: this driver cannot change it")
	}
	return c.SetNetwork(ctx, n)
}

// An ImageKeeper is a driver that keeps images. All take references as people
// write them. Errors are of kind NotFound for an image that is not to be had.
type ImageKeeper interface {
	// PullImage fetches an image, so that Create finds it. A pull that an
	// earlier call began is continued.
	PullImage(ctx context.Context, order ImagePull) (sandbox.Image, error)
	// ImageName returns the name under which Images lists what PullImage fetches
	// by a reference.
	ImageName(ref string) (string, error)
	// LoadImages takes in the images of an archive: all of them, or none.
	LoadImages(ctx context.Context, from ImageArchive, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error)
	// Images lists the images that are here, and Image returns one of them,
	// by name, digest or the beginning of its ID.
	Images(ctx context.Context) ([]sandbox.Image, error)
	Image(ctx context.Context, ref string) (sandbox.Image, error)
	// RemoveImage removes one, and PruneImages those that were not used for
	// so long, or all, with what no image has. Sandboxes go on.
	RemoveImage(ctx context.Context, ref string) (freed int64, err error)
	PruneImages(ctx context.Context, unused time.Duration, all bool) (names []string, freed int64, err error)
}

// An ImagePull is an order to fetch an image.
type ImagePull struct {
	Ref string
	// Missing fetches nothing if the image is here.
	Missing bool
	// Anywhere lets the registry have any address, as the operator may ask for.
	// Else it has a public one, or the operator's configuration lists it.
	Anywhere bool
	// Progress, if not nil, is told how far it is.
	Progress func(sandbox.ImageProgress)
}

// An ImageBuilder is an ImageKeeper that also builds images.
type ImageBuilder interface {
	// BuildImage builds an image of a Dockerfile. What the build says goes to
	// said.
	BuildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error)
}

// An ImageExtender is an ImageKeeper that makes images of others, for those who
// build them in boxes.
type ImageExtender interface {
	// ExtendImage makes an image of one that is here, or of
	// [sandbox.ImageScratch], of which it also makes boxes.
	ExtendImage(ctx context.Context, order ImageExtension) (sandbox.Image, error)
}

// An ImageExtension is an order for an image that has another's files and more.
type ImageExtension struct {
	// Base and Name are references; By is how it was made, for people.
	Base, Name, By string
	// Layer, if not nil, is an uncompressed layer above the base's.
	Layer io.Reader
	// Config takes the place of what the base says.
	Config sandbox.ImageConfig
}

// An ImageBuild is an order for an image.
type ImageBuild struct {
	// Context is an archive of a Dockerfile and what that copies; Name is what
	// to call the image.
	Context io.Reader
	Name    string
	// Args are the build's arguments. Network is what the build's programs
	// reach, in the engine's words; empty is the engine's default.
	Args    map[string]string
	Network string
}

// An ImageArchive is where images are loaded from: what docker save made, or an
// archive or a directory in OCI layout.
type ImageArchive struct {
	// Path is a file or a directory; if it is empty, the archive is read from
	// Reader.
	Path   string
	Reader io.Reader
	// Name, if not empty, is what to call the only image of the archive.
	Name string
}

// A Wrapper is a driver around another, which has the abilities that are not
// the wrapper's own.
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

// Ability returns the ability T of a driver, or of the one that it wraps.
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

// IsGone reports whether err says that a box no longer exists.
func IsGone(err error) bool { return errors.Is(err, ErrGone) }

// A WorkspaceKeeper is a driver whose boxes cannot have directories of this
// machine, as they are on another: it keeps workspaces there.
type WorkspaceKeeper interface {
	// KeepsWorkspaces reports whether it does, and where: [Spec.Workspace] is
	// then a directory in that one, on the other machine.
	KeepsWorkspaces() (dir string, ok bool)
	// DialWorkspaces opens a stream to what serves them, on which package
	// workspace's Remote speaks.
	DialWorkspaces(ctx context.Context) (net.Conn, error)
}

// A Cleaner is a driver whose boxes may leave something behind that List does
// not tell of, because the state directory that they belonged to is gone, or
// because it is no box.
type Cleaner interface {
	// Leftovers names what nothing uses any more and, if remove is set, removes
	// it: then it names what it removed, and the error tells of the rest. What
	// a process that lives may be about to use is no leftover.
	Leftovers(ctx context.Context, remove bool) ([]string, error)
}

// Leftovers does that for a driver; one that is no Cleaner leaves nothing.
func Leftovers(ctx context.Context, d Driver, remove bool) ([]string, error) {
	if w, ok := d.(Wrapper); ok {
		return Leftovers(ctx, w.Unwrap(), remove)
	}
	if c, ok := d.(Cleaner); ok {
		return c.Leftovers(ctx, remove)
	}
	return nil, nil
}

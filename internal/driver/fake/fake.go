package fake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options configure a driver and its failures. Several goroutines may call the
// functions at once; a nil function has no effect.
type Options struct {
	// Dir is the state directory. New makes it if it does not exist.
	Dir string

	// Pretend lists controls whose receipt claims that they are enforced, with the
	// requested value. Create then accepts limits among them, as a driver that
	// enforces them does. The driver still enforces nothing.
	Pretend []sandbox.ControlName

	// OnCreate is called when Create begins. It may wait, to simulate a slow
	// driver, and must return when ctx ends. If it returns an error, Create returns
	// that error and starts nothing.
	OnCreate func(ctx context.Context, spec *driver.Spec) error

	// OnDial is like OnCreate, for Dial. id is the identifier of the sandbox.
	OnDial func(ctx context.Context, id string) error

	// OnDestroy is like OnCreate, for Destroy. If it returns an error, the box
	// remains.
	OnDestroy func(ctx context.Context, id string) error

	// OnReceipt changes the receipts that Receipt returns.
	OnReceipt func(id string, r sandbox.Receipt) sandbox.Receipt

	// Incidents, if not nil, returns the incidents of all boxes. Boxes then
	// implement [driver.Reporter], and Info declares this. The driver sets Alive.
	Incidents func(id string) driver.Incidents

	// Usage, if not nil, returns the usage of all boxes. Boxes then implement
	// [driver.Meter], and Info declares this.
	Usage func(id string) driver.Usage

	// Stderr receives the standard error of the helper processes, which write only
	// errors. If it is nil, the output is discarded.
	Stderr *os.File

	// NoPause, NoDetach and NoWorkspace remove features that the driver otherwise
	// declares.
	NoPause, NoDetach, NoWorkspace bool

	// WorkspaceCopied is declared as a feature; it requires NoWorkspace.
	WorkspaceCopied bool
}

// limits are the controls of the limits in a spec. A driver that cannot enforce one
// of them must refuse the spec.
var limits = []sandbox.ControlName{
	sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlProcesses, sandbox.ControlDisk,
}

// Limits returns the controls that the driver does not enforce. A spec must allow
// each of them unenforced, unless Options.Pretend contains it.
func Limits() []sandbox.ControlName { return slices.Clone(limits) }

func (o *Options) info() driver.Info {
	return driver.Info{
		Name:     "fake",
		Boundary: sandbox.BoundaryNone,
		Features: driver.Features{
			Host:      true,
			Pause:     !o.NoPause,
			Incidents: o.Incidents != nil,
			Usage:     o.Usage != nil,
			Detach:    !o.NoDetach,
			Workspace: !o.NoWorkspace,
			Unnamed:   !o.NoWorkspace,

			WorkspaceCopied: o.WorkspaceCopied,
			Ports:           true,
		},
	}
}

// check refuses a spec that the driver cannot fulfil.
func (o *Options) check(spec *driver.Spec) error {
	const hint = "the fake driver is for tests: it has only this machine, without limits"
	if !sandbox.ValidID(spec.ID) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not a sandbox's identifier", spec.ID), hint)
	}
	if spec.Image != sandbox.ImageHost {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "image %q: only %q is to be had", spec.Image, sandbox.ImageHost), hint)
	}
	if spec.Network != sandbox.NetworkNone {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network %q: only %q is to be had", spec.Network, sandbox.NetworkNone), hint)
	}
	if spec.Detached && o.NoDetach {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "detached boxes are switched off"), hint)
	}
	if spec.Containers {
		return driver.RefuseContainers()
	}
	if len(spec.Mounts) > 0 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "mounts: boxes have no mount namespace"), hint)
	}
	if spec.Workspace != "" {
		if o.NoWorkspace {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "workspaces are switched off"), hint)
		}
		if fi, err := os.Lstat(spec.Workspace); err != nil || !fi.IsDir() || !filepath.IsAbs(spec.Workspace) {
			return sandbox.Errorf(sandbox.Invalid, "workspace %q is not a directory (%v)", spec.Workspace, err)
		}
	}
	for _, name := range limits {
		if !slices.Contains(o.Pretend, name) && !slices.Contains(spec.AllowUnenforced, name) {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot be limited", name), "allow %s unenforced; %s", name, hint)
		}
	}
	return nil
}

// receipt reports every control as not enforced, except those in Pretend.
func (o *Options) receipt(id string, spec *driver.Spec) sandbox.Receipt {
	asked := map[sandbox.ControlName]string{
		sandbox.ControlCPU:          fmt.Sprintf("%g CPUs", spec.Limits.CPUs),
		sandbox.ControlMemory:       sandbox.FormatBytes(spec.Limits.MemoryBytes),
		sandbox.ControlProcesses:    fmt.Sprint(spec.Limits.Processes),
		sandbox.ControlDisk:         sandbox.FormatBytes(spec.Limits.DiskBytes),
		sandbox.ControlNetwork:      string(spec.Network),
		sandbox.ControlUser:         sandbox.User,
		sandbox.ControlCapabilities: "none",
		sandbox.ControlSeccomp:      "filtered",
		sandbox.ControlRootFS:       spec.Image,
	}
	var r sandbox.Receipt
	for _, name := range sandbox.ControlNames() {
		c := sandbox.Control{Name: name, Asked: asked[name]}
		if slices.Contains(o.Pretend, name) {
			c.Value, c.Mechanism, c.Enforced = c.Asked, "pretended", true
		}
		r = append(r, c)
	}
	if o.OnReceipt != nil {
		r = o.OnReceipt(id, r)
	}
	return r
}

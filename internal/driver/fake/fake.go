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

// Options say how a driver works and how it fails. The functions may be called
// at once by several goroutines; nil ones do nothing.
type Options struct {
	// Dir is the state directory. It is made if it is not there.
	Dir string

	// Pretend names controls whose receipt claims that they are enforced, with
	// the value that was asked for. Limits among them are then accepted, as by
	// a driver that can. Nothing is enforced all the same.
	Pretend []sandbox.ControlName

	// OnCreate is called when Create begins. It may wait, to be a slow driver,
	// and must return when ctx ends. An error makes Create fail with it, before
	// anything is started.
	OnCreate func(ctx context.Context, spec *driver.Spec) error

	// OnDial is called when Dial begins, likewise. ID is the sandbox's.
	OnDial func(ctx context.Context, id string) error

	// OnDestroy is called when Destroy begins, likewise; after an error the
	// box lives.
	OnDestroy func(ctx context.Context, id string) error

	// OnReceipt changes what Receipt answers.
	OnReceipt func(id string, r sandbox.Receipt) sandbox.Receipt

	// Incidents, if not nil, answers for all boxes, which then implement
	// [driver.Reporter], as Info declares. Alive is filled in.
	Incidents func(id string) driver.Incidents

	// Stderr takes what the helper processes have to say: nothing, unless they
	// crash. If it is nil, that is lost.
	Stderr *os.File

	// NoPause, NoDetach and NoWorkspace take away what the driver declares
	// otherwise.
	NoPause, NoDetach, NoWorkspace bool

	// WorkspaceCopied, with NoWorkspace, is declared.
	WorkspaceCopied bool
}

// limits are the controls that a spec has limits for, which a driver that
// cannot enforce them must refuse.
var limits = []sandbox.ControlName{
	sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlProcesses, sandbox.ControlDisk,
}

// Limits returns the controls that the driver does not enforce, and that a
// spec must allow unenforced if the driver does not pretend.
func Limits() []sandbox.ControlName { return slices.Clone(limits) }

func (o *Options) info() driver.Info {
	return driver.Info{
		Name:     "fake",
		Boundary: sandbox.BoundaryNone,
		Features: driver.Features{
			Host:      true,
			Pause:     !o.NoPause,
			Incidents: o.Incidents != nil,
			Detach:    !o.NoDetach,
			Workspace: !o.NoWorkspace,
			Unnamed:   !o.NoWorkspace,

			WorkspaceCopied: o.WorkspaceCopied,
			Ports:           true,
		},
	}
}

// check refuses what the driver cannot do.
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

// receipt says that nothing is enforced but what the options pretend.
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

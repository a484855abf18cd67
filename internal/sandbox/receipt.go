package sandbox

import "slices"

// A ControlName names one control that confines a sandbox.
type ControlName string

// The controls that a driver reads back for every receipt, in this order.
const (
	ControlCPU          ControlName = "cpu"
	ControlMemory       ControlName = "memory"
	ControlProcesses    ControlName = "processes"
	ControlDisk         ControlName = "disk"
	ControlNetwork      ControlName = "network"
	ControlUser         ControlName = "user"
	ControlCapabilities ControlName = "capabilities"
	ControlSeccomp      ControlName = "seccomp"
	ControlRootFS       ControlName = "root_filesystem"
)

// ControlBoundary names the control for the boundary between the code and the
// machine. The engine puts it first in every receipt. It is a property of the
// driver, not a limit.
const ControlBoundary ControlName = "boundary"

// A Boundary names the isolation between the code in a sandbox and the machine
// that runs it. The text is for people and for programs.
type Boundary string

// The boundaries.
const (
	BoundaryKernel  Boundary = "own kernel (gVisor)"
	BoundaryMachine Boundary = "virtual machine (E2B)"
	// BoundaryRuntimeClass is the boundary of a runtime class of Kubernetes, of which
	// the operator says that it has a kernel of its own.
	BoundaryRuntimeClass Boundary = "own kernel (runtime class)"

	BoundaryContainer Boundary = "shared kernel (container)"
	BoundaryNone      Boundary = "none (for tests)"
)

// OwnKernel reports whether a sandbox behind this boundary has a kernel of its
// own. A vulnerability of the host kernel is then not enough to escape.
func (b Boundary) OwnKernel() bool {
	return b == BoundaryKernel || b == BoundaryMachine || b == BoundaryRuntimeClass
}

// ControlNames returns the names of the controls that a driver reads back, in a
// receipt's order.
func ControlNames() []ControlName {
	return []ControlName{
		ControlCPU, ControlMemory, ControlProcesses, ControlDisk, ControlNetwork,
		ControlUser, ControlCapabilities, ControlSeccomp, ControlRootFS,
	}
}

// A Control compares the requested value of one control with the value in force.
// All text is for people. Only Enforced is for programs.
type Control struct {
	Name ControlName `json:"name"`
	// Asked is the value that the sandbox's creator asked for, or the default.
	Asked string `json:"asked"`
	// Value is the value that the driver read back from the mechanism after the
	// sandbox started. It is empty if no mechanism enforces the control.
	Value string `json:"value"`
	// Mechanism names the mechanism that enforces the control, such as "cgroup v2
	// memory.max".
	Mechanism string `json:"mechanism"`
	// Enforced is true if Value is in force and no weaker than Asked.
	Enforced bool `json:"enforced"`
}

// A Receipt says how each control of a sandbox is actually enforced.
type Receipt []Control

// Control returns the control of that name. A control that is not in the receipt
// is not enforced.
func (r Receipt) Control(name ControlName) Control {
	if i := slices.IndexFunc(r, func(c Control) bool { return c.Name == name }); i >= 0 {
		return r[i]
	}
	return Control{Name: name}
}

// Unenforced returns the names of controls that are not in force.
func (r Receipt) Unenforced() []ControlName {
	var names []ControlName
	for _, n := range ControlNames() {
		if !r.Control(n).Enforced {
			names = append(names, n)
		}
	}
	return names
}

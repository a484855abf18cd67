package sandbox

import "slices"

// A ControlName names one thing that a sandbox is confined by.
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

// ControlBoundary names the control that says what stands between the code and
// the machine. The engine puts it first into every receipt; it is a fact about
// the driver, and no limit.
const ControlBoundary ControlName = "boundary"

// A Boundary names what stands between the code in a sandbox and the machine that
// it runs on. The text is for people and for programs.
type Boundary string

// The boundaries there are.
const (
	BoundaryKernel    Boundary = "own kernel (gVisor)"
	BoundaryMachine   Boundary = "virtual machine (E2B)"
	BoundaryContainer Boundary = "shared kernel (container)"
	BoundaryNone      Boundary = "none (for tests)"
)

// OwnKernel reports whether a sandbox behind this boundary has a kernel of its
// own. A hole in the kernel of the machine is then not a way out by itself.
func (b Boundary) OwnKernel() bool { return b == BoundaryKernel || b == BoundaryMachine }

// ControlNames returns the names of the controls that a driver reads back, in a
// receipt's order.
func ControlNames() []ControlName {
	return []ControlName{
		ControlCPU, ControlMemory, ControlProcesses, ControlDisk, ControlNetwork,
		ControlUser, ControlCapabilities, ControlSeccomp, ControlRootFS,
	}
}

// A Control is what was asked of one control and what was found in force. All
// text is for people; only Enforced is for programs.
type Control struct {
	Name ControlName `json:"name"`
	// Asked is what the sandbox's creator asked for, or the default.
	Asked string `json:"asked"`
	// Value is what was read back from whatever enforces it, after the
	// sandbox started; empty if nothing does.
	Value string `json:"value"`
	// Mechanism names what enforces it: "cgroup v2 memory.max", say.
	Mechanism string `json:"mechanism"`
	// Enforced says that Value is in force and no weaker than Asked.
	Enforced bool `json:"enforced"`
}

// A Receipt says, control by control, how a sandbox is really confined.
type Receipt []Control

// Control returns the control of that name; one that is not in the receipt is
// not enforced.
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

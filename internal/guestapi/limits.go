package guestapi

import "context"

// PathLimits answers what the sandbox's kernel says of the limits that it
// keeps, as [Limits]. It is ours, beyond E2B's protocol.
const PathLimits = "/limits"

// Limits are what the guest reads back from the kernel it runs on.
type Limits struct {
	// DiskBytes is the size of the root file system, Processes the limit on
	// processes of each user.
	DiskBytes int64 `json:"diskBytes"`
	Processes int64 `json:"processes"`
	// NoNewPrivs says that no program can gain privileges by being executed;
	// Capabilities, in hexadecimal, are those that a program keeps when it
	// becomes another user's.
	NoNewPrivs   bool   `json:"noNewPrivs"`
	Capabilities string `json:"capabilities"`
	// Interfaces are the network's.
	Interfaces []string `json:"interfaces"`
	// Seccomp is the mode of system call filtering: 2 is a filter. Bounding,
	// in hexadecimal, are the capabilities that any program can ever have.
	Seccomp  int    `json:"seccomp"`
	Bounding string `json:"bounding"`
	// UserNamespace says that the box's users are not the machine's.
	UserNamespace bool `json:"userNamespace"`
	// OpenFiles is the limit on open files of each process.
	OpenFiles int64 `json:"openFiles"`
	// Mounts are the file systems that are mounted.
	Mounts []Mount `json:"mounts,omitempty"`
	// Group is what the box's control group says, where the box can see it.
	Group Group `json:"group"`
}

// A Mount is a file system that is mounted in a box.
type Mount struct {
	Path     string `json:"path"`
	Type     string `json:"type"`
	Device   string `json:"device"` // of the kernel; what is mounted twice has the same
	ReadOnly bool   `json:"readOnly"`
	Bytes    int64  `json:"bytes"` // its size
}

// A Group is what a control group says of its limits; zero is no limit, or
// nothing known.
type Group struct {
	CPUs        float64 `json:"cpus"`
	MemoryBytes int64   `json:"memoryBytes"`
	SwapBytes   int64   `json:"swapBytes"` // -1 is no limit
	Processes   int64   `json:"processes"` // and threads
	// GuestThreads are the guest's own threads, which count among Processes.
	GuestThreads int64 `json:"guestThreads"`
	// MemoryKills and ProcessRefusals count what the limits led to.
	MemoryKills     int `json:"memoryKills"`
	ProcessRefusals int `json:"processRefusals"`
}

// Limits asks the guest for the limits it lives under.
func (c *Client) Limits(ctx context.Context) (*Limits, error) {
	var l Limits
	if err := c.call(ctx, "read limits", PathLimits, "", struct{}{}, &l); err != nil {
		return nil, err
	}
	return &l, nil
}

package guestapi

import "context"

// PathLimits answers with the limits that the sandbox's kernel reports, as
// [Limits]. It is ours, beyond E2B's protocol.
const PathLimits = "/limits"

// Limits are the limits and restrictions that the guest reads from its OS
// kernel.
type Limits struct {
	// DiskBytes is the size of the root file system. Processes is the limit on
	// the processes of each user.
	DiskBytes int64 `json:"diskBytes"`
	Processes int64 `json:"processes"`
	// NoNewPrivs is set if an exec cannot add privileges. Capabilities, in
	// hexadecimal, are those that a program keeps when it changes its user.
	NoNewPrivs   bool   `json:"noNewPrivs"`
	Capabilities string `json:"capabilities"`
	// Interfaces are the names of the network interfaces.
	Interfaces []string `json:"interfaces"`
	// Tunnel is set if the guest's own program made the network interface, in a
	// network namespace of the box's own. NoTunnel says why it could not, although it
	// was asked to.
	Tunnel   bool   `json:"tunnel,omitempty"`
	NoTunnel string `json:"noTunnel,omitempty"`
	// Seccomp is the mode of system call filtering: 2 is a filter. Bounding, in
	// hexadecimal, is the capability bounding set.
	Seccomp  int    `json:"seccomp"`
	Bounding string `json:"bounding"`
	// UserNamespace is set if the box's users are not the machine's.
	UserNamespace bool `json:"userNamespace"`
	// OpenFiles is the limit on the open files of each process.
	OpenFiles int64 `json:"openFiles"`
	// Mounts are the mounted file systems.
	Mounts []Mount `json:"mounts,omitempty"`
	// Group holds the limits of the box's control group, if the box can see it.
	Group Group `json:"group"`
}

// A Mount is a file system that is mounted in a box.
type Mount struct {
	Path     string `json:"path"`
	Type     string `json:"type"`
	Device   string `json:"device"` // device number; two mounts of one file system have the same
	ReadOnly bool   `json:"readOnly"`
	Bytes    int64  `json:"bytes"` // size of the file system
}

// A Group is the limits and counters of a control group. Zero is no limit or not
// known, except for SwapBytes.
type Group struct {
	CPUs        float64 `json:"cpus"`
	MemoryBytes int64   `json:"memoryBytes"`
	SwapBytes   int64   `json:"swapBytes"` // 0 is no swap, -1 no limit or not known
	Processes   int64   `json:"processes"` // and threads
	// GuestThreads are the guest's own threads, which count among Processes.
	GuestThreads int64 `json:"guestThreads"`
	// MemoryKills counts OOM kills, ProcessRefusals refused forks.
	MemoryKills     int `json:"memoryKills"`
	ProcessRefusals int `json:"processRefusals"`
}

// Limits returns the limits of the sandbox, as the guest reads them.
func (c *Client) Limits(ctx context.Context) (*Limits, error) {
	var l Limits
	if err := c.call(ctx, "read limits", PathLimits, "", struct{}{}, &l); err != nil {
		return nil, err
	}
	return &l, nil
}

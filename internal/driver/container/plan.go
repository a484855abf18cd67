package container

import (
	"math"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// capabilities are the capabilities of the guest, and of sandbox-root. They allow
// access to other users' files and processes, and a change of user.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}

// RunDir holds no files of users.
const RunDir = "/run"

const (
	// shmSize bounds /dev/shm, whose content counts as memory.
	shmSize = 64 << 20
	// runSize bounds /run, which holds the guest's socket and belongs to root.
	runSize = 1 << 20
	// tunnelMemory and tunnelProcesses bound the tunnel's container.
	tunnelMemory    = 64 << 20
	tunnelProcesses = 32
)

// Abilities are the facts about a platform that plans depend on.
type Abilities struct {
	// CPU, Memory and Processes mean that the platform can limit these.
	CPU, Memory, Processes bool
	// CPUs is the number of processors of the platform's machine.
	CPUs int
	// IPv6 means that the platform's machine has IPv6, as far as is known.
	IPv6 bool
}

// Lacking returns the first limit of a spec that the platform cannot enforce and
// that the box must have. It returns "" if there is none.
func (a Abilities) Lacking(spec *driver.Spec) sandbox.ControlName {
	for _, l := range []struct {
		name sandbox.ControlName
		can  bool
	}{
		{sandbox.ControlCPU, a.CPU},
		{sandbox.ControlMemory, a.Memory},
		{sandbox.ControlProcesses, a.Processes},
	} {
		if !l.can && !MayLack(spec, l.name) {
			return l.name
		}
	}
	return ""
}

// A Plan is the description of a container for a driver to translate.
//
// The program of every container is the guest's, at [GuestPath] in a volume that is
// mounted read-only at [GuestDir]. It runs as root of the container, unless the
// record says OneUser, in the directory /, and gets its standard input from the process that made it. When that
// process ends, so does the input. Some rules are for every container:
//
//   - It has an IPC namespace of its own.
//   - No program in it gets privileges that it does not start with (no_new_privs).
//   - It has the system call filter that is the platform's default.
//   - It keeps no logs, has no health check and is not started again.
type Plan struct {
	Name     string
	Hostname string // "" is the platform's choice
	// Args are the arguments of the guest's program.
	Args   []string
	Labels map[string]string
	// UserCode means that the container runs code of users. Only such a container
	// gets a runtime for untrusted code: the server of workspaces relies on a kernel
	// that refuses symbolic links on request, and gVisor's follows them.
	UserCode bool
	// Temporary means that the platform removes the container when its process ends.
	Temporary bool
	// Capabilities are all capabilities of the container.
	Capabilities []string
	// Devices are the paths of devices of the platform's machine.
	Devices []string
	// ReadOnlyRoot means that the root is read-only; Scratch are writable.
	ReadOnlyRoot bool
	// LayerBytes bounds the container's own layer; zero is no bound.
	LayerBytes int64
	// MemoryBytes, without swap, NanoCPUs and Processes are limits; zero is no limit.
	MemoryBytes, NanoCPUs, Processes int64
	ShmBytes                         int64 // size of /dev/shm; zero is the platform's choice
	// Scratch are file systems in memory.
	Scratch []Scratch
	// ImageVolumes are file systems in memory for the volumes that the image
	// declares, which would be on the platform's disk, unbounded.
	ImageVolumes []Scratch
	// Settings are the names of files in the settings volume, by the paths at which
	// the container has them, read-only.
	Settings map[string]string
	// Mounts are the workspace and the mounts of the spec. The driver replaces their
	// directories by the platform's paths of them.
	Mounts []driver.Mount
	// Volumes are volumes of the platform, by the paths at which they are mounted.
	Volumes map[string]string
	// Network is the name of the container whose network namespace the container
	// shares. If it is "", the container has a namespace with only a loopback
	// interface.
	Network string
	// IPv6 means that IPv6 must be on. Container engines disable it if their own
	// networks have none.
	IPv6 bool
}

// A Scratch is a file system in memory.
type Scratch struct {
	Path  string
	Bytes int64
	Mode  int // permissions
}

// NewPlan returns the plan for the container of a box, or of a server of workspaces.
// volumes are the paths of the volumes that the image declares.
func NewPlan(state *StateDir, rec *Record, can Abilities, volumes []string) (*Plan, error) {
	spec, l := &rec.Spec, rec.Spec.Limits
	labels, err := state.labels(rec)
	if err != nil {
		return nil, err
	}
	limit := func(name sandbox.ControlName, can bool, n int64) int64 {
		if !can && MayLack(spec, name) {
			return 0
		}
		return n
	}
	own := capabilities
	if rec.OneUser {
		own = nil
	}
	cpus := math.Min(l.CPUs, float64(max(can.CPUs, 1)))
	p := &Plan{
		Name:         spec.ID,
		Hostname:     spec.Hostname,
		Args:         guestArgs(rec),
		Labels:       labels,
		UserCode:     true,
		Capabilities: own,
		ReadOnlyRoot: rec.Disk == DiskMemory,
		MemoryBytes:  limit(sandbox.ControlMemory, can.Memory, l.MemoryBytes),
		NanoCPUs:     limit(sandbox.ControlCPU, can.CPU, int64(math.Round(cpus*1e9))),
		Processes:    limit(sandbox.ControlProcesses, can.Processes, int64(l.Processes)+guestThreads),
		ShmBytes:     min(shmSize, max(l.MemoryBytes/4, 1<<20)),
		Scratch:      []Scratch{{RunDir, runSize, 0o755}},
		Settings:     settingMounts(rec.linked()),
		IPv6:         rec.linked() && can.IPv6,
	}
	if spec.Workspace != "" {
		p.Mounts = append([]driver.Mount{{Path: sandbox.WorkDir, Dir: spec.Workspace}}, spec.Mounts...)
	}
	switch rec.Disk {
	case DiskQuota:
		p.LayerBytes = l.DiskBytes
	case DiskMemory:
		for _, s := range scratch(l, spec.Writable) {
			if s.Path != sandbox.WorkDir || spec.Workspace == "" {
				p.Scratch = append(p.Scratch, s)
			}
		}
	}
	for _, path := range volumes {
		if !slices.ContainsFunc(p.Scratch, func(s Scratch) bool { return s.Path == path }) {
			p.ImageVolumes = append(p.ImageVolumes, Scratch{path, max(l.DiskBytes/50, 64<<10), 0o755})
		}
	}
	if rec.Workspaces != "" {
		delete(labels, LabelSandbox) // it is no box, so the driver must not list it
		labels[LabelRole] = RoleWorkspaces
		p.UserCode, p.Temporary = false, true
		p.Volumes = map[string]string{WorkspacesDir: rec.Workspaces}
	}
	return p, nil
}

// TunnelPlan returns the plan for the tunnel of the box ref.
func TunnelPlan(ref string, can Abilities) *Plan {
	p := &Plan{
		Name:         TunnelName(ref),
		Args:         tunnelArgs(),
		Labels:       map[string]string{LabelRole: RoleNetwork},
		Temporary:    true, // the tunnel ends with its server
		Capabilities: []string{"NET_ADMIN"},
		Devices:      []string{"/dev/net/tun"},
		ReadOnlyRoot: true,
		Network:      ref,
	}
	if can.Memory {
		p.MemoryBytes = tunnelMemory
	}
	if can.Processes {
		p.Processes = tunnelProcesses
	}
	return p
}

// scratch divides the disk limit among the directories that programs write. Their
// sum is within the limit. Each is at most half of the memory, so that a full
// directory does not cause an OOM kill. If a caller asks for directories of its
// own, it works there, perhaps as root, so the usual directory gets less.
func scratch(l sandbox.Limits, writable []string) []Scratch {
	most := l.MemoryBytes / 2
	part := func(percent int64) int64 {
		n := min(l.DiskBytes*percent/100, most)
		return max(n/4096*4096, 4096)
	}
	if n := int64(len(writable)); n > 0 {
		all := []Scratch{
			{sandbox.WorkDir, part(10), 0o755},
			{homeDir, part(4), 0o755},
			{"/tmp", part(8), 0o1777},
			{"/var/tmp", part(1), 0o1777},
			{"/root", part(35), 0o700},
		}
		for _, dir := range writable {
			all = append(all, Scratch{dir, part(40 / n), 0o755})
		}
		return all
	}
	return []Scratch{
		{sandbox.WorkDir, part(84), 0o755},
		{homeDir, part(8), 0o755},
		{"/tmp", part(4), 0o1777},
		{"/var/tmp", part(1), 0o1777},
		{"/root", part(1), 0o700},
	}
}

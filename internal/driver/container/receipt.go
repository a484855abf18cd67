package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// receiptOf makes a receipt from the kernel's values inside the box and from the
// policies that its network was asked for and enforces. inForce is "" if there is
// no network or it does not answer.
func receiptOf(rec *Record, in *guestapi.Limits, asked, inForce sandbox.Network) sandbox.Receipt {
	l := rec.Spec.Limits
	return sandbox.Receipt{
		cpuControl(l.CPUs, in.Group.CPUs),
		{
			Name:      sandbox.ControlMemory,
			Asked:     sandbox.FormatBytes(l.MemoryBytes),
			Value:     memoryValue(in.Group),
			Mechanism: "control group, read inside",
			Enforced:  in.Group.MemoryBytes > 0 && in.Group.MemoryBytes <= l.MemoryBytes,
		},
		processControl(l.Processes, in.Group),
		diskControl(rec, in.Mounts),
		networkControl(in, rec, asked, inForce),
		{
			Name:      sandbox.ControlUser,
			Asked:     sandbox.User,
			Value:     userValue(rec, in.UserNamespace),
			Mechanism: fmt.Sprintf("the guest runs programs as uid %d", sandbox.UserUID),
			Enforced:  true,
		},
		{
			Name:      sandbox.ControlCapabilities,
			Asked:     "none",
			Value:     "user programs " + in.Capabilities + "; bounding set " + in.Bounding,
			Mechanism: "no_new_privs, capability bounding set",
			// Without root and without new privileges, nothing uses the bounding set.
			Enforced: in.NoNewPrivs && isZero(in.Capabilities) && (rec.OneUser || few(in.Bounding)),
		},
		{
			Name:      sandbox.ControlSeccomp,
			Asked:     "filter",
			Value:     map[int]string{0: "none", 1: "strict", 2: "filter"}[in.Seccomp],
			Mechanism: "the engine's seccomp profile",
			Enforced:  in.Seccomp == 2,
		},
		rootControl(rec, in.Mounts),
	}
}

// networkControl reports what the box can reach.
func networkControl(in *guestapi.Limits, rec *Record, asked, inForce sandbox.Network) sandbox.Control {
	names := in.Interfaces
	c := sandbox.Control{
		Name:      sandbox.ControlNetwork,
		Asked:     string(asked),
		Value:     "interfaces inside: " + strings.Join(names, " "),
		Mechanism: "a network namespace with no device",
		Enforced:  len(names) == 0 || slices.Equal(names, []string{"lo"}),
	}
	if !rec.linked() {
		return c
	}
	c.Mechanism = "a network stack of its own behind the only interface, which decides about every connection"
	if inForce == "" {
		c.Value += "; nothing is reached, because nothing carries the network"
	} else {
		c.Value += "; policy in force: " + string(inForce)
	}
	// The platform's own interface may have the name of a tunnel's. A guest that makes
	// its interface itself says whether it did.
	c.Enforced = (inForce == "" || inForce == asked) && (in.Tunnel || !rec.OneUser) &&
		!slices.ContainsFunc(names, func(n string) bool { return n != "lo" && n != linkName })
	return c
}

func cpuControl(asked, got float64) sandbox.Control {
	c := sandbox.Control{
		Name:      sandbox.ControlCPU,
		Asked:     strconv.FormatFloat(asked, 'g', -1, 64),
		Mechanism: "control group, read inside",
	}
	if got > 0 {
		c.Value = strconv.FormatFloat(got, 'g', -1, 64)
		c.Enforced = got <= asked+1e-4 // container engines round to whole microseconds
	}
	return c
}

// fromPlatform puts the platform's limits of processors and memory where the kernel
// inside shows none.
func fromPlatform(r sandbox.Receipt, l *sandbox.Limits, inside guestapi.Group, s State) sandbox.Receipt {
	for i := range r {
		c := &r[i]
		switch {
		case c.Name == sandbox.ControlCPU && inside.CPUs == 0:
			*c = cpuControl(l.CPUs, s.CPUs)
			c.Mechanism = s.Source
		case c.Name == sandbox.ControlMemory && inside.MemoryBytes == 0 && s.MemoryBytes > 0:
			c.Value, c.Mechanism = sandbox.FormatBytes(s.MemoryBytes), s.Source
			c.Enforced = s.MemoryBytes <= l.MemoryBytes
		}
	}
	return r
}

func memoryValue(g guestapi.Group) string {
	switch {
	case g.MemoryBytes == 0:
		return ""
	case g.SwapBytes == 0:
		return sandbox.FormatBytes(g.MemoryBytes) + ", no swap"
	case g.SwapBytes < 0:
		return sandbox.FormatBytes(g.MemoryBytes) + ", the engine does not limit swap"
	}
	return sandbox.FormatBytes(g.MemoryBytes) + ", and swap " + sandbox.FormatBytes(g.SwapBytes)
}

// processControl reports the limit that remains for programs. The limit also counts
// the guest's threads, which do not end.
func processControl(asked int, g guestapi.Group) sandbox.Control {
	c := sandbox.Control{
		Name:      sandbox.ControlProcesses,
		Asked:     strconv.Itoa(asked),
		Mechanism: "control group, read inside",
	}
	if g.Processes > 0 {
		c.Value = fmt.Sprintf("%d with %d threads of the guest", g.Processes, guestThreads)
		c.Enforced = g.GuestThreads >= guestThreads && g.Processes-guestThreads <= int64(asked)
	}
	return c
}

// smallMounts lists mount points of the platform's own file systems. They hold only
// a few names, or have their own limit and count as memory.
var smallMounts = map[string]bool{"/dev": true, "/dev/shm": true, "/dev/pts": true, "/dev/mqueue": true, "/run": true}

// kernelTypes are the types of file systems that store no data.
var kernelTypes = map[string]bool{"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devpts": true, "mqueue": true}

// diskControl adds up the sizes of all writable file systems.
func diskControl(rec *Record, mounts []guestapi.Mount) sandbox.Control {
	asked := rec.Spec.Limits.DiskBytes
	c := sandbox.Control{Name: sandbox.ControlDisk, Asked: sandbox.FormatBytes(asked)}
	var sum int64
	seen := map[string]bool{}
	known := false
	for _, m := range mounts {
		if m.Path == "/" {
			known = true
		}
		mounted := slices.ContainsFunc(rec.Spec.Mounts, func(own driver.Mount) bool { return own.Path == m.Path })
		if mounted || m.Path == sandbox.WorkDir && rec.Spec.Workspace != "" {
			continue // it is the caller's; package engine bounds it with the workspace quota
		}
		if m.ReadOnly || smallMounts[m.Path] || kernelTypes[m.Type] || seen[m.Device] || strings.HasPrefix(m.Path, "/proc/") || strings.HasPrefix(m.Path, "/sys/") {
			continue
		}
		if (m.Type == "tmpfs" || m.Type == "devtmpfs") && strings.HasPrefix(m.Path, "/dev/") {
			continue // a device of the platform; with a rootless engine, of the machine
		}
		seen[m.Device] = true
		sum += m.Bytes
	}
	c.Value = sandbox.FormatBytes(sum)
	switch rec.Disk {
	case DiskMemory:
		c.Mechanism = "read-only root; file systems in memory, which count as memory, too"
		c.Enforced = known && sum > 0 && sum <= asked
	case DiskQuota:
		c.Mechanism = "the engine's quota for the container's layer"
		c.Enforced = known && sum > 0 && sum <= asked
	default:
		c.Mechanism = "none: the container's layer is on the engine's disk"
	}
	return c
}

func rootControl(rec *Record, mounts []guestapi.Mount) sandbox.Control {
	c := sandbox.Control{
		Name:      sandbox.ControlRootFS,
		Asked:     "read-only image, private writable layer",
		Mechanism: "mount namespace",
	}
	i := slices.IndexFunc(mounts, func(m guestapi.Mount) bool { return m.Path == "/" })
	if i < 0 {
		return c
	}
	c.Value, c.Enforced = "a layer of its own over the image", rec.Disk != DiskMemory
	if mounts[i].ReadOnly {
		c.Value, c.Enforced = "read-only", true
	}
	return c
}

func userValue(rec *Record, namespace bool) string {
	if rec.OneUser {
		return "one user, also for what is asked for as root: there is no root inside"
	}
	if namespace {
		return "in a user namespace: root inside is nobody outside"
	}
	return "the engine uses no user namespace: root inside is root outside, without its capabilities"
}

func isZero(hex string) bool { return hex != "" && strings.Trim(hex, "0") == "" }

// few reports whether a set of capabilities contains only the guest's capabilities.
func few(hex string) bool {
	set, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return false
	}
	bits := map[string]uint{"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
	for _, name := range capabilities {
		set &^= 1 << bits[name]
	}
	return set == 0
}

package gvisor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A report reads the controls of a box back.
type report struct{ *message.Report }

// receipt reads every control back. in contains the limits of the sentry, as the
// guest reads them.
func (r report) receipt(in *guestapi.Limits) (sandbox.Receipt, error) {
	status, err := process.Status(r.Sentry)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	limits := r.Record.Spec.Limits
	return sandbox.Receipt{
		r.cpuControl(status),
		r.memoryControl(),
		r.processesControl(in),
		{
			Name:      sandbox.ControlDisk,
			Asked:     sandbox.FormatBytes(limits.DiskBytes),
			Value:     sandbox.FormatBytes(in.DiskBytes),
			Mechanism: "gVisor, size of the writable layer",
			Enforced:  in.DiskBytes > 0 && in.DiskBytes <= limits.DiskBytes,
		},
		r.networkControl(in.Interfaces),
		r.userControl(),
		r.capabilitiesControl(in),
		{
			Name:      sandbox.ControlSeccomp,
			Asked:     "filter",
			Value:     seccompMode(status["Seccomp"]),
			Mechanism: "the host sees only gVisor's own system calls, through its seccomp filter",
			Enforced:  status["Seccomp"] == "2",
		},
		{
			Name:      sandbox.ControlRootFS,
			Asked:     "read-only image, private writable layer",
			Value:     "gVisor's own root is empty; the image's directories are handed to it read-only",
			Mechanism: "gVisor overlay over mounts that are read-only and in no namespace",
			Enforced:  otherNamespace(r.Sentry, "mnt"),
		},
	}, nil
}

// processesControl reports the process limit and its scope. A limit for each user
// would not bind sandbox-root, which can use any number of users.
func (r report) processesControl(in *guestapi.Limits) sandbox.Control {
	asked := r.Record.Spec.Limits.Processes
	c := sandbox.Control{
		Name:  sandbox.ControlProcesses,
		Asked: strconv.Itoa(asked),
		Value: strconv.FormatInt(in.Processes, 10),
	}
	if !r.Record.CountsAll {
		c.Value += " of each user"
		c.Mechanism = "gVisor, RLIMIT_NPROC; the sandbox is of an earlier version"
		return c
	}
	c.Value += " of the sandbox"
	c.Mechanism = "gVisor, programs of all users together"
	c.Enforced = in.Processes > 0 && in.Processes <= int64(asked)
	if r.Record.Cgroup != nil && r.Record.Cgroup.Dirs[cgroup.PIDs] != "" {
		most, err := r.Record.Cgroup.Tasks()
		if err != nil {
			c.Value += "; " + err.Error()
			c.Enforced = false
			return c
		}
		c.Value += fmt.Sprintf("; at most %d processes and threads of the host", most)
		c.Mechanism += "; " + r.Record.Cgroup.Name("pids.max", "pids.max")
		c.Enforced = c.Enforced && most <= allowance.Group(r.Record.Spec.Limits, r.Record.Linked).Tasks && r.Record.Cgroup.Holds(r.Sentry, cgroup.PIDs)
	}
	return c
}

// userControl reports the users of programs. The host is protected because the
// sentry has no rights there; the users inside are an additional measure.
func (r report) userControl() sandbox.Control {
	c := sandbox.Control{
		Name:      sandbox.ControlUser,
		Asked:     sandbox.User,
		Value:     "gVisor itself is in a user namespace of its own",
		Mechanism: fmt.Sprintf("the guest runs programs as uid %d of the box", sandbox.UserUID),
		Enforced:  otherNamespace(r.Sentry, "user"),
	}
	switch first := r.Record.FirstUser; {
	case first != 0:
		c.Value += fmt.Sprintf(", and uid %d of the host, which is none of the host's users", first)
		c.Enforced = c.Enforced && process.RunsAs(r.Sentry, first)
	case r.Record.WhyHostUsers != "":
		c.Value += ", with the host's numbers of users: " + r.Record.WhyHostUsers
	}
	if r.Record.UserIsRoot {
		c.Value += "; in the box programs are sandbox-root, to whom alone the workspace can belong"
		c.Mechanism = "user namespace with one user, the one that runs glovebox"
	}
	return c
}

func (r report) capabilitiesControl(in *guestapi.Limits) sandbox.Control {
	c := sandbox.Control{
		Name:      sandbox.ControlCapabilities,
		Asked:     "none",
		Value:     in.Capabilities,
		Mechanism: "gVisor, no_new_privs; gVisor itself has no capability outside its user namespace",
		Enforced:  in.NoNewPrivs && zero(in.Capabilities) && otherNamespace(r.Sentry, "user"),
	}
	if r.Record.Spec.Containers {
		c.Value += "; root of the box may mount file systems and configure the box's network"
	}
	if r.Record.UserIsRoot {
		c.Value += " on the host; in the box those of sandbox-root"
	}
	return c
}

func (r report) cpuControl(status map[string]string) sandbox.Control {
	asked := r.Record.Spec.Limits.CPUs
	c := sandbox.Control{Name: sandbox.ControlCPU, Asked: strconv.FormatFloat(asked, 'g', -1, 64)}
	switch {
	case r.Record.Cgroup != nil && r.Record.Cgroup.Dirs[cgroup.CPU] != "":
		c.Mechanism = r.Record.Cgroup.Name("cpu.cfs_quota_us", "cpu.max")
		got, err := r.Record.Cgroup.CPUs()
		if err != nil {
			c.Value = err.Error()
			return c
		}
		c.Value = strconv.FormatFloat(got, 'g', -1, 64)
		if burst := r.Record.Cgroup.CPUBurst(); burst > 0 {
			c.Value += fmt.Sprintf(" on average, and at most %v of CPU time more at once", burst)
		}
		// The limit is written in whole microseconds.
		c.Enforced = math.Abs(got-asked) <= 1.0/cgroup.Period && r.Record.Cgroup.Holds(r.Sentry, cgroup.CPU)
	case len(r.Record.CPUSet) > 0:
		c.Mechanism = "CPU affinity"
		c.Value = "processors " + status["Cpus_allowed_list"]
		c.Enforced = r.bound()
	}
	return c
}

// bound reports whether every thread of the sentry is bound to no more processors
// than the box has.
func (r report) bound() bool {
	tids, err := process.Threads(r.Sentry)
	for _, tid := range tids {
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && set.Count() > len(r.Record.CPUSet) {
			return false
		}
	}
	return err == nil && len(tids) > 0
}

func (r report) memoryControl() sandbox.Control {
	asked := r.Record.Spec.Limits.MemoryBytes
	c := sandbox.Control{Name: sandbox.ControlMemory, Asked: sandbox.FormatBytes(asked)}
	if r.Record.WatchMemory {
		c.Mechanism = "watched by glovebox, which ends the box above the limit"
		c.Value = c.Asked
		c.Enforced = r.Watched
		return c
	}
	c.Mechanism = r.Record.Cgroup.Name("memory.limit_in_bytes", "memory.max")
	got, err := r.Record.Cgroup.Memory()
	if err != nil {
		c.Value = err.Error()
		return c
	}
	c.Value = sandbox.FormatBytes(got)
	most := allowance.Group(r.Record.Spec.Limits, r.Record.Linked).Memory
	if most > asked {
		c.Value += fmt.Sprintf(", of which %s are for the network's process", sandbox.FormatBytes(most-asked))
	}
	// The host kernel rounds to whole pages.
	c.Enforced = got <= most && r.Record.Cgroup.Holds(r.Sentry, cgroup.Memory)
	return c
}

// otherNamespace reports whether a process and this one are in different namespaces
// of that kind.
func otherNamespace(pid int, kind string) bool {
	mine, err1 := os.Readlink(filepath.Join("/proc/self/ns", kind))
	its, err2 := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind))
	return err1 == nil && err2 == nil && mine != its
}

func zero(hex string) bool {
	return hex != "" && strings.Trim(hex, "0") == ""
}

func seccompMode(mode string) string {
	switch mode {
	case "2":
		return "filter"
	case "1":
		return "strict"
	}
	return "none"
}

// networkControl reports what a box can reach; names are its interfaces.
func (r report) networkControl(names []string) sandbox.Control {
	c := sandbox.Control{
		Name:  sandbox.ControlNetwork,
		Asked: string(r.Record.Spec.Network),
		Value: "interfaces inside: " + strings.Join(names, " "),
	}
	apart := otherNamespace(r.Sentry, "net")
	if !r.Record.Linked {
		c.Mechanism = "gVisor's own network stack with no device, in an empty network namespace"
		c.Enforced = apart && (len(names) == 0 || slices.Equal(names, []string{"lo"}))
		return c
	}
	c.Mechanism = "a network stack of its own behind the only interface, which decides about every connection"
	if r.Network == "" {
		// The interface leads nowhere: the box reaches less than was requested.
		c.Value += "; nothing is reached, because the network's process has ended"
	} else {
		c.Value += "; policy in force: " + string(r.Network)
		if len(r.Walls) > 0 { // a network of an earlier version reports none
			c.Mechanism += ", in a process with " + strings.Join(r.Walls, ", ")
		}
	}
	c.Enforced = apart && (r.Network == "" || r.Network == r.Record.Spec.Network) &&
		!slices.ContainsFunc(names, func(n string) bool { return n != "lo" && n != message.LinkName })
	return c
}

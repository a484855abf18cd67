package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// inside is what the guest's program says of the limits that the box's kernel
// keeps, asked anew in the box for each receipt.
type inside struct {
	DiskBytes int64 `json:"disk_bytes"` // size of the root file system
	Processes int64 `json:"processes"`  // RLIMIT_NPROC
	NoNewPriv bool  `json:"no_new_privs"`
	UID       int   `json:"uid"`
	// UserCaps are the capabilities of a program run as user, in hex.
	UserCaps   string   `json:"user_capabilities"`
	Interfaces []string `json:"interfaces"` // of the network
}

// askInside runs the guest's program in the box to read its limits back.
func (b *madeBox) askInside() (inside, error) {
	var in inside
	r, w, err := os.Pipe()
	if err != nil {
		return in, err
	}
	defer r.Close()
	pid, err := b.container.Execute(b.conf, &control.ExecArgs{
		Filename:         guestPath,
		Argv:             []string{guestPath, "limits"},
		WorkingDirectory: "/",
		KUID:             sandbox.UserUID,
		KGID:             sandbox.UserUID,
		Capabilities:     &auth.TaskCapabilities{},
		NoNewPrivileges:  true,
		FilePayload:      control.NewFilePayload(map[int]*os.File{0: b.null, 1: w, 2: b.null}, nil),
	})
	w.Close()
	if err != nil {
		return in, b.orGone(err)
	}
	data, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if _, werr := b.container.WaitPID(pid); err == nil {
		err = werr
	}
	if err != nil {
		return in, b.orGone(err)
	}
	return in, json.Unmarshal(data, &in)
}

// receipt reads every control back. users is the driver's user namespace.
func (b *madeBox) receipt(users string) (sandbox.Receipt, error) {
	if !b.alive() {
		return nil, fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	in, err := b.askInside()
	if err != nil {
		return nil, fmt.Errorf("ask inside: %w", err)
	}
	status, err := processStatus(b.sentry())
	if err != nil {
		return nil, b.orGone(err)
	}
	itsUsers, err := namespace(b.sentry(), "user")
	if err != nil {
		return nil, b.orGone(err)
	}
	return sandbox.Receipt{
		b.cpuControl(status),
		b.memoryControl(),
		{
			Name:      sandbox.ControlProcesses,
			Asked:     strconv.Itoa(b.record.Spec.Limits.Processes),
			Value:     strconv.FormatInt(in.Processes, 10),
			Mechanism: "gVisor, RLIMIT_NPROC of each user",
			Enforced:  in.Processes > 0 && in.Processes <= int64(b.record.Spec.Limits.Processes),
		},
		{
			Name:      sandbox.ControlDisk,
			Asked:     sandbox.FormatBytes(b.record.Spec.Limits.DiskBytes),
			Value:     sandbox.FormatBytes(in.DiskBytes),
			Mechanism: "gVisor, size of the writable layer",
			Enforced:  in.DiskBytes > 0 && in.DiskBytes <= b.record.Spec.Limits.DiskBytes,
		},
		b.networkControl(in),
		{
			Name:      sandbox.ControlUser,
			Asked:     sandbox.User,
			Value:     fmt.Sprintf("uid %d inside; outside, gVisor runs in %s, not in the host's %s", in.UID, itsUsers, users),
			Mechanism: "gVisor, and a user namespace",
			Enforced:  in.UID == sandbox.UserUID && itsUsers != users,
		},
		{
			Name:      sandbox.ControlCapabilities,
			Asked:     "none",
			Value:     in.UserCaps,
			Mechanism: "gVisor, no_new_privs; gVisor itself has no capability outside its user namespace",
			Enforced:  in.NoNewPriv && zero(in.UserCaps) && itsUsers != users,
		},
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
			Value:     "gVisor's own root is empty; files come through the gofer, read-only",
			Mechanism: "gVisor overlay, gofer in a mount namespace of its own",
			Enforced:  otherNamespace(b.sentry(), "mnt") && otherNamespace(b.container.GoferPid.Load(), "mnt"),
		},
	}, nil
}

func (b *madeBox) cpuControl(status map[string]string) sandbox.Control {
	asked := b.record.Spec.Limits.CPUs
	c := sandbox.Control{Name: sandbox.ControlCPU, Asked: strconv.FormatFloat(asked, 'g', -1, 64)}
	switch {
	case b.record.Cgroup != nil && b.record.Cgroup.Dirs[cpuController] != "":
		c.Mechanism = b.record.Cgroup.name("cpu.cfs_quota_us", "cpu.max")
		got, err := b.record.Cgroup.cpus()
		if err != nil {
			c.Value = err.Error()
			return c
		}
		c.Value = strconv.FormatFloat(got, 'g', -1, 64)
		// What was asked for is written in whole microseconds.
		c.Enforced = math.Abs(got-asked) <= 1.0/cpuPeriod && b.inGroup(cpuController)
	case len(b.record.CPUSet) > 0:
		c.Mechanism = "CPU affinity"
		c.Value = "processors " + status["Cpus_allowed_list"]
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(b.sentry(), &set); err == nil {
			c.Enforced = float64(set.Count()) <= math.Max(asked, 1)
		}
	}
	return c
}

func (b *madeBox) memoryControl() sandbox.Control {
	asked := b.record.Spec.Limits.MemoryBytes
	c := sandbox.Control{Name: sandbox.ControlMemory, Asked: sandbox.FormatBytes(asked)}
	if b.watch != nil {
		c.Mechanism = "watched by glovebox, which ends the box above the limit"
		c.Value = sandbox.FormatBytes(b.watch.limit)
		select {
		case <-b.watch.done:
		default:
			c.Enforced = b.watch.limit <= asked
		}
		return c
	}
	c.Mechanism = b.record.Cgroup.name("memory.limit_in_bytes", "memory.max")
	got, err := b.record.Cgroup.memory()
	if err != nil {
		c.Value = err.Error()
		return c
	}
	c.Value = sandbox.FormatBytes(got)
	// The kernel rounds to whole pages.
	c.Enforced = got <= asked && b.inGroup(memoryController)
	return c
}

// name names the file that holds a limit, for a person.
func (g *cgroup) name(v1, v2 string) string {
	if g != nil && g.V2 {
		return "cgroup v2 " + v2
	}
	return "cgroup v1 " + v1
}

// inGroup reports whether the sentry is in the box's group.
func (b *madeBox) inGroup(controller string) bool {
	procs, err := b.record.Cgroup.read(controller, "cgroup.procs")
	if err != nil {
		return false
	}
	want := strconv.Itoa(b.sentry())
	for pid := range strings.FieldsSeq(procs) {
		if pid == want {
			return true
		}
	}
	return false
}

func (b *madeBox) networkControl(in inside) sandbox.Control {
	onlyLoopback := len(in.Interfaces) == 0 || len(in.Interfaces) == 1 && in.Interfaces[0] == "lo"
	return sandbox.Control{
		Name:      sandbox.ControlNetwork,
		Asked:     string(b.record.Spec.Network),
		Value:     "interfaces inside: " + strings.Join(in.Interfaces, " "),
		Mechanism: "gVisor's own network stack with no device, in an empty network namespace",
		Enforced:  onlyLoopback && otherNamespace(b.sentry(), "net"),
	}
}

// namespace returns a process's namespace of that kind, as /proc names it.
func namespace(pid int, kind string) (string, error) {
	return os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind))
}

// otherNamespace reports whether a process is in another namespace of that
// kind than this one is.
func otherNamespace(pid int, kind string) bool {
	mine, err1 := os.Readlink(filepath.Join("/proc/self/ns", kind))
	its, err2 := namespace(pid, kind)
	return err1 == nil && err2 == nil && mine != its
}

// processStatus returns the fields of a process's status; of several values
// the first.
func processStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(line, ":")
		if f := strings.Fields(value); ok && len(f) > 0 {
			fields[name] = f[0]
		}
	}
	return fields, nil
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

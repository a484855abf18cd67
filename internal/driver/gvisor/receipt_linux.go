package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// inside is what the guest's program says of the limits that the box's kernel
// keeps, asked anew in the box for each receipt. It runs as nobody, whom the
// user's programs can neither trace nor signal.
type inside struct {
	DiskBytes int64 `json:"disk_bytes"` // size of the root file system
	Processes int64 `json:"processes"`  // RLIMIT_NPROC
	NoNewPriv bool  `json:"no_new_privs"`
	// Caps are the capabilities of a program that is not root's, in hexadecimal.
	Caps       string   `json:"capabilities"`
	Interfaces []string `json:"interfaces"` // of the network
}

// askTime is how long a box may take to say what its limits are.
const askTime = 10 * time.Second

// nobody is the user that nothing belongs to.
const nobody = 65534

// askInside runs the guest's program in the box to read its limits back.
func (b *madeBox) askInside(ctx context.Context) (inside, error) {
	var in inside
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return in, err
	}
	defer r.Close()
	pid, err := b.container.Execute(b.conf, &control.ExecArgs{
		Filename:         guestPath,
		Argv:             []string{guestPath, "limits"},
		WorkingDirectory: "/",
		KUID:             nobody,
		KGID:             nobody,
		Capabilities:     &auth.TaskCapabilities{},
		NoNewPrivileges:  true,
		FilePayload:      control.NewFilePayload(map[int]*os.File{0: b.null, 1: w, 2: b.null}, nil),
	})
	w.Close()
	if err != nil {
		return in, b.orGone(err)
	}
	defer context.AfterFunc(ctx, func() { r.Close() })()
	data, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		_ = b.container.SignalProcess(unix.SIGKILL, pid)
		return in, b.orGone(errors.Join(ctx.Err(), err))
	}
	return in, json.Unmarshal(data, &in)
}

// askAwake is askInside also of a box that is paused, which it leaves paused.
func (b *madeBox) askAwake(ctx context.Context) (inside, error) {
	b.mu.Lock()
	if b.gone || !b.paused() {
		b.mu.Unlock()
		return b.askInside(ctx)
	}
	defer b.mu.Unlock()
	if err := b.wake(); err != nil {
		return inside{}, err
	}
	in, err := b.askInside(ctx)
	return in, errors.Join(err, b.sleep())
}

// A report is what the maker tells of a box for its receipt. The driver, which
// is outside of the box's user namespace, reads the rest.
type report struct {
	Record  record `json:"record"`
	Sentry  int    `json:"sentry"`
	Gofer   int    `json:"gofer"`
	Inside  inside `json:"inside"`
	Watched bool   `json:"watched,omitempty"` // its memory, just now
}

// report asks inside the box and says what it is made of.
func (b *madeBox) report(ctx context.Context) (*report, error) {
	if !b.alive() {
		return nil, fmt.Errorf("%w: its kernel does not run", driver.ErrGone)
	}
	in, err := b.askAwake(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask inside: %w", err)
	}
	return &report{
		Record:  b.record,
		Sentry:  b.sentry(),
		Gofer:   b.container.GoferPid.Load(),
		Inside:  in,
		Watched: b.watch != nil && b.watch.running(),
	}, nil
}

// receipt reads every control back.
func (r *report) receipt() (sandbox.Receipt, error) {
	status, err := processStatus(r.Sentry)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrGone, err)
	}
	limits, in := r.Record.Spec.Limits, r.Inside
	return sandbox.Receipt{
		r.cpuControl(status),
		r.memoryControl(),
		{
			Name:      sandbox.ControlProcesses,
			Asked:     strconv.Itoa(limits.Processes),
			Value:     strconv.FormatInt(in.Processes, 10),
			Mechanism: "gVisor, RLIMIT_NPROC of each user",
			Enforced:  in.Processes > 0 && in.Processes <= int64(limits.Processes),
		},
		{
			Name:      sandbox.ControlDisk,
			Asked:     sandbox.FormatBytes(limits.DiskBytes),
			Value:     sandbox.FormatBytes(in.DiskBytes),
			Mechanism: "gVisor, size of the writable layer",
			Enforced:  in.DiskBytes > 0 && in.DiskBytes <= limits.DiskBytes,
		},
		r.networkControl(),
		{
			Name:      sandbox.ControlUser,
			Asked:     sandbox.User,
			Value:     "gVisor itself is in a user namespace of its own",
			Mechanism: fmt.Sprintf("the guest runs programs as uid %d of the box", sandbox.UserUID),
			Enforced:  otherNamespace(r.Sentry, "user"),
		},
		{
			Name:      sandbox.ControlCapabilities,
			Asked:     "none",
			Value:     in.Caps,
			Mechanism: "gVisor, no_new_privs; gVisor itself has no capability outside its user namespace",
			Enforced:  in.NoNewPriv && zero(in.Caps) && otherNamespace(r.Sentry, "user"),
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
			Value:     "gVisor's own root is empty; the image's directories are handed to it read-only",
			Mechanism: "gVisor overlay over a mount namespace of its own",
			Enforced:  otherNamespace(r.Sentry, "mnt") && otherNamespace(r.Gofer, "mnt"),
		},
	}, nil
}

func (r *report) cpuControl(status map[string]string) sandbox.Control {
	asked := r.Record.Spec.Limits.CPUs
	c := sandbox.Control{Name: sandbox.ControlCPU, Asked: strconv.FormatFloat(asked, 'g', -1, 64)}
	switch {
	case r.Record.Cgroup != nil && r.Record.Cgroup.Dirs[cpuController] != "":
		c.Mechanism = r.Record.Cgroup.name("cpu.cfs_quota_us", "cpu.max")
		got, err := r.Record.Cgroup.cpus()
		if err != nil {
			c.Value = err.Error()
			return c
		}
		c.Value = strconv.FormatFloat(got, 'g', -1, 64)
		// What was asked for is written in whole microseconds.
		c.Enforced = math.Abs(got-asked) <= 1.0/cpuPeriod && r.inGroup(cpuController)
	case len(r.Record.CPUSet) > 0:
		c.Mechanism = "CPU affinity"
		c.Value = "processors " + status["Cpus_allowed_list"]
		c.Enforced = r.bound()
	}
	return c
}

// bound reports whether every thread of the sentry is bound to the box's
// processors.
func (r *report) bound() bool {
	tids, err := threads(r.Sentry)
	for _, tid := range tids {
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && set.Count() > len(r.Record.CPUSet) {
			return false
		}
	}
	return err == nil && len(tids) > 0
}

func (r *report) memoryControl() sandbox.Control {
	asked := r.Record.Spec.Limits.MemoryBytes
	c := sandbox.Control{Name: sandbox.ControlMemory, Asked: sandbox.FormatBytes(asked)}
	if r.Record.WatchMemory {
		c.Mechanism = "watched by glovebox, which ends the box above the limit"
		c.Value = c.Asked
		c.Enforced = r.Watched
		return c
	}
	c.Mechanism = r.Record.Cgroup.name("memory.limit_in_bytes", "memory.max")
	got, err := r.Record.Cgroup.memory()
	if err != nil {
		c.Value = err.Error()
		return c
	}
	c.Value = sandbox.FormatBytes(got)
	// The kernel rounds to whole pages.
	c.Enforced = got <= asked && r.inGroup(memoryController)
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
func (r *report) inGroup(controller string) bool {
	procs, err := r.Record.Cgroup.read(controller, "cgroup.procs")
	if err != nil {
		return false
	}
	want := strconv.Itoa(r.Sentry)
	for pid := range strings.FieldsSeq(procs) {
		if pid == want {
			return true
		}
	}
	return false
}

func (r *report) networkControl() sandbox.Control {
	names := r.Inside.Interfaces
	onlyLoopback := len(names) == 0 || len(names) == 1 && names[0] == "lo"
	return sandbox.Control{
		Name:      sandbox.ControlNetwork,
		Asked:     string(r.Record.Spec.Network),
		Value:     "interfaces inside: " + strings.Join(names, " "),
		Mechanism: "gVisor's own network stack with no device, in an empty network namespace",
		Enforced:  onlyLoopback && otherNamespace(r.Sentry, "net"),
	}
}

// otherNamespace reports whether a process is in another namespace of that
// kind than this one is.
func otherNamespace(pid int, kind string) bool {
	mine, err1 := os.Readlink(filepath.Join("/proc/self/ns", kind))
	its, err2 := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind))
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

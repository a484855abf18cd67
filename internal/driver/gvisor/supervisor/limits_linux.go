package supervisor

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/memwatch"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// plan names the mechanisms that enforce a box's limits. The sentry always enforces
// disk and processes; a control group also bounds the host's processes, in case the
// sentry is broken. A control group enforces CPU and memory, if one can be made.
// Without it, the box is bound to a whole number of processors, and the supervisor
// watches its memory.
type plan struct {
	group       bool
	cpuSet      []int
	watchMemory bool
}

// newPlan returns the mechanisms for the limits of spec, with the control groups that
// can be made, or nil. The error names a limit that cannot be enforced.
func newPlan(groups *cgroup.Hierarchies, spec *driver.Spec) (plan, error) {
	p := plan{
		group:       groups.Has(cgroup.CPU) || groups.Has(cgroup.Memory) || groups.Has(cgroup.PIDs),
		watchMemory: !groups.Has(cgroup.Memory),
	}
	if groups.Has(cgroup.CPU) {
		return p, nil
	}
	here, err := process.OwnCPUs()
	if err != nil {
		return plan{}, err
	}
	asked := spec.Limits.CPUs
	switch {
	case asked == math.Trunc(asked) && int(asked) <= len(here):
		rand.Shuffle(len(here), func(i, j int) { here[i], here[j] = here[j], here[i] })
		p.cpuSet = here[:int(asked)]
		slices.Sort(p.cpuSet)
	case asked >= float64(len(here)):
		p.cpuSet = here
	case slices.Contains(spec.AllowUnenforced, sandbox.ControlCPU):
	default:
		return plan{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "cpus: %g is not a whole number, and without a control group only whole CPUs can be enforced", asked),
			"ask for %d, run as root or in a systemd unit with Delegate=yes, or accept it with --allow-unenforced cpu", int(math.Ceil(asked)))
	}
	return p, nil
}

// apply makes the resources of the plan before the box's processes start, and
// records them.
func (p plan) apply(groups *cgroup.Hierarchies, b *box) error {
	b.record.CPUSet = p.cpuSet
	b.record.WatchMemory = p.watchMemory
	if p.group {
		b.record.Cgroup = groups.Of(b.record.Spec.ID)
		b.record.GroupCPUTime = 0 // the group of a box that was saved is gone
	}
	// The record must name the group before it exists.
	if err := b.save(); err != nil || !p.group {
		return err
	}
	_, err := groups.Make(b.record.Spec.ID, allowance.Group(b.record.Spec.Limits, b.record.Linked))
	return err
}

// confine applies the limits to the box's processes. The sentry comes first,
// because its later children inherit them.
func (b *box) confine() error {
	sentry := b.sentry()
	if err := b.confineProcess(sentry); err != nil {
		return err
	}
	pids := process.Descendants(sentry) // includes the sentry, if it is alive
	if b.network > 0 {
		pids = append(pids, b.network)
	}
	for _, pid := range pids {
		if err := b.confineProcess(pid); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) confineProcess(pid int) error {
	if b.record.Cgroup != nil {
		if err := b.record.Cgroup.Add(pid); err != nil {
			return err
		}
	}
	if len(b.record.CPUSet) > 0 {
		return process.Bind(pid, b.record.CPUSet)
	}
	return nil
}

// startWatch begins to enforce the memory limit. The watch closes file.
func (b *box) startWatch(file *os.File) {
	b.watch = memwatch.Start(file, b.sentry(), b.network, b.record.Spec.Limits.MemoryBytes, b.memoryMark())
}

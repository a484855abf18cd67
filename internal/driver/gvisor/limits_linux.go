package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// plan says by what means a box's limits will be kept. Disk and processes are
// always kept by the box's own kernel; a control group also bounds the host's
// processes, should that kernel be broken. CPU and memory are kept by a control
// group where one can be made; without, whole CPUs are kept by binding the box
// to so many processors, and memory by the maker's watching it.
type plan struct {
	group       bool
	cpuSet      []int
	watchMemory bool
}

// plan returns how to keep the limits of spec, or says which cannot be.
func (m *maker) plan(spec *driver.Spec) (plan, error) {
	p := plan{
		group:       m.cgs.has(cpuController) || m.cgs.has(memoryController) || m.cgs.has(pidsController),
		watchMemory: !m.cgs.has(memoryController),
	}
	if m.cgs.has(cpuController) {
		return p, nil
	}
	here, err := ownCPUs()
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

// apply makes what the plan needs before the box's processes start, and the
// record of it.
func (p plan) apply(m *maker, b *madeBox) error {
	b.record.CPUSet = p.cpuSet
	b.record.WatchMemory = p.watchMemory
	if p.group {
		b.record.Cgroup = m.cgs.of(b.record.Spec.ID)
	}
	// The record must name the group before it exists.
	if err := b.save(); err != nil || !p.group {
		return err
	}
	_, err := m.cgs.make(b.record.Spec.ID, b.record.groupLimits())
	return err
}

// confine puts the box's processes under the limits. The sentry comes first:
// what it starts from then on is born where it is.
func (b *madeBox) confine() error {
	sentry := b.sentry()
	if err := b.confineProcess(sentry); err != nil {
		return err
	}
	pids := descendants(sentry) // itself once more, if it lives
	if b.network > 0 {
		pids = append(pids, b.network)
	}
	for _, pid := range pids {
		if err := b.confineProcess(pid); err != nil {
			return err
		}
	}
	if b.record.WatchMemory {
		file, err := openMemoryFile(sentry)
		if err != nil {
			return err
		}
		b.startWatch(file)
	}
	return nil
}

func (b *madeBox) confineProcess(pid int) error {
	if b.record.Cgroup != nil {
		if err := b.record.Cgroup.add(pid); err != nil {
			return err
		}
	}
	if len(b.record.CPUSet) > 0 {
		return bind(pid, b.record.CPUSet)
	}
	return nil
}

// startWatch begins to keep the memory limit; file becomes the watch's.
func (b *madeBox) startWatch(file *os.File) {
	b.watch = watchMemory(file, b.sentry(), b.network, b.record.Spec.Limits.MemoryBytes, b.memoryMark())
}

// ownCPUs returns the processors that this thread may run on.
func ownCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	return cpusOf(&set), nil
}

func cpusOf(set *unix.CPUSet) []int {
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// bind binds all threads of a process to cpus, which those it makes later
// inherit.
func bind(pid int, cpus []int) error {
	var want unix.CPUSet
	for _, cpu := range cpus {
		want.Set(cpu)
	}
	// A thread may have been made meanwhile by one that was not bound yet.
	for changed := true; changed; {
		changed = false
		tids, err := threads(pid)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // one of the short-lived helpers has ended
		}
		if err != nil {
			return err
		}
		for _, tid := range tids {
			var got unix.CPUSet
			err := unix.SchedGetaffinity(tid, &got)
			if err == nil && got != want {
				changed = true
				err = unix.SchedSetaffinity(tid, &want)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("bind to CPUs %v: %w", cpus, err)
			}
		}
	}
	return nil
}

// threads returns the numbers of a process's threads.
func threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

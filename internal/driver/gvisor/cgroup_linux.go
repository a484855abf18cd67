package gvisor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The controllers that confine boxes, if they are available.
const (
	cpuController    = "cpu"
	memoryController = "memory"
	pidsController   = "pids"
)

// cgroupParent is the name of the group that contains the groups of boxes.
const cgroupParent = "glovebox"

// cgroups are the control groups that this process may make. gVisor's own code for
// groups moves its process into a box's group and out again while it starts the
// box. A process that makes several boxes at once cannot use that.
type cgroups struct {
	v2   bool
	base map[string]string // controller to the directory below which to make groups
}

// findCgroups returns the control groups that this process can make, or nil.
func findCgroups() *cgroups {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	if c := findCgroupsV1(string(mounts), string(own)); c != nil {
		return c
	}
	return findCgroupsV2(string(mounts), string(own), rootIsRoot())
}

// serverGroup is the group below the server's own group into which makeRoom moves
// the server.
const serverGroup = "glovebox-server"

// rootIsRoot reports whether uid 0 here is also uid 0 on the host, which means that
// root started the driver.
func rootIsRoot() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(data))
	return err == nil && len(f) >= 3 && f[0] == "0" && f[1] == "0"
}

// cgroupMount is a mounted hierarchy.
type cgroupMount struct{ root, dir, options string }

// cgroupMounts returns the mounts of a file system type in mountinfo.
func cgroupMounts(mountinfo, fstype string) []cgroupMount {
	var found []cgroupMount
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 5 && len(r) >= 3 && r[0] == fstype {
			found = append(found, cgroupMount{root: l[3], dir: l[4], options: r[2]})
		}
	}
	return found
}

// ownGroup returns this process's group in the hierarchy of a controller ("" is
// version 2's), from the text of /proc/self/cgroup.
func ownGroup(own, controller string) string {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			if c == controller {
				return parts[2]
			}
		}
	}
	return "/"
}

// below returns a group's directory in a mount of its hierarchy.
func (m cgroupMount) below(group string) string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "."
	}
	return filepath.Join(m.dir, rel)
}

func findCgroupsV1(mountinfo, own string) *cgroups {
	c := &cgroups{base: map[string]string{}}
	for _, m := range cgroupMounts(mountinfo, "cgroup") {
		for option := range strings.SplitSeq(m.options, ",") {
			switch option {
			case cpuController, memoryController, pidsController:
				if dir := m.below(ownGroup(own, option)); unix.Access(dir, unix.W_OK) == nil {
					c.base[option] = dir
				}
			}
		}
	}
	if c.base[memoryController] == "" && c.base[cpuController] == "" {
		return nil
	}
	return c
}

// findCgroupsV2 uses the root of the hierarchy if root started the server, as
// container engines do. For other users it uses their own group, if it was
// delegated to them.
func findCgroupsV2(mountinfo, own string, root bool) *cgroups {
	mounts := cgroupMounts(mountinfo, "cgroup2")
	if len(mounts) == 0 {
		return nil
	}
	dir := mounts[0].dir
	if !root {
		// An earlier maker of this server may have called makeRoom.
		group := strings.TrimSuffix(ownGroup(own, ""), "/"+serverGroup)
		dir = mounts[0].below(group)
	}
	if unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil {
		return nil
	}
	controllers := []string{cpuController, memoryController}
	if there, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")); err == nil && slices.Contains(strings.Fields(string(there)), pidsController) {
		controllers = append(controllers, pidsController)
	}
	if err := enableControllers(dir, controllers); err != nil {
		// A group that contains processes cannot enable controllers for its
		// children. In a delegated group, these processes are the server and this
		// maker.
		if root || !errors.Is(err, unix.EBUSY) || makeRoom(dir) != nil || enableControllers(dir, controllers) != nil {
			return nil
		}
	}
	c := &cgroups{v2: true, base: map[string]string{}}
	for _, controller := range controllers {
		c.base[controller] = dir
	}
	return c
}

func enableControllers(dir string, controllers []string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+strings.Join(controllers, " +")), 0)
}

// makeRoom moves this process and its parent out of dir, into a group below it.
func makeRoom(dir string) error {
	leaf := filepath.Join(dir, serverGroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range []int{os.Getppid(), os.Getpid()} {
		if pid <= 1 {
			continue // the server has ended
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the groups have that controller.
func (c *cgroups) has(controller string) bool {
	return c != nil && c.base[controller] != ""
}

// A cgroup is one box's group, in every hierarchy. It is plain data, so it can be
// stored and used by another process.
type cgroup struct {
	V2   bool              `json:"v2"`
	Dirs map[string]string `json:"dirs"` // by controller
}

// of returns a box's group, which may not exist.
func (c *cgroups) of(id string) *cgroup {
	g := &cgroup{V2: c.v2, Dirs: map[string]string{}}
	for controller, base := range c.base {
		g.Dirs[controller] = filepath.Join(base, cgroupParent, id)
	}
	return g
}

// make makes a box's group with its limits. The group contains no processes yet.
func (c *cgroups) make(id string, l groupLimits) (g *cgroup, err error) {
	// The removal of another box's group may have just removed the parent.
	for range 5 {
		if g, err = c.tryMake(id, l); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return g, err
}

func (c *cgroups) tryMake(id string, l groupLimits) (*cgroup, error) {
	g := c.of(id)
	for controller, dir := range g.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make control group: %w", err), g.remove())
		}
		if c.v2 {
			controllers := slices.Sorted(maps.Keys(c.base))
			if err := enableControllers(filepath.Join(c.base[controller], cgroupParent), controllers); err != nil {
				return nil, errors.Join(fmt.Errorf("enable controllers: %w", err), g.remove())
			}
		}
	}
	for _, s := range g.settings(l) {
		err := os.WriteFile(filepath.Join(g.Dirs[s.controller], s.file), []byte(s.value), 0)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return nil, errors.Join(fmt.Errorf("limit %s: %w", s.controller, err), g.remove())
		}
	}
	return g, nil
}

// groupLimits are the limits of one box's group.
type groupLimits struct {
	cpus   float64
	memory int64 // bytes
	tasks  int   // processes and threads of the host
}

// groupLimits returns the limits of the box's group.
func (r *record) groupLimits() groupLimits {
	l := r.Spec.Limits
	g := groupLimits{cpus: l.CPUs, memory: l.MemoryBytes, tasks: hostTasks(l)}
	if r.Linked {
		g.memory += networkMemory
		g.tasks += networkTasks
	}
	return g
}

// sentryTasks is the allowance for the host threads of a sentry without programs.
// 16 were counted.
const sentryTasks = 64

// networkMemory is the basic memory use of a network process, in bytes. The group
// of a box with a network gets this much more. Memory that connections take beyond
// it counts as the box's.
const networkMemory = 32 << 20

// networkTasks is the allowance for the host threads of a network process. About 10
// were counted.
const networkTasks = 64

// hostTasks returns how many host processes and threads a box may need, for
// pids.max. The sentry enforces the process limit. hostTasks bounds the host's
// processes if the sentry is broken, so it must be above every legitimate use.
//
// For each process inside, systrap has one process that makes system calls and one
// for each processor of the box. It keeps them for the next process. Each process
// or thread that computes also takes a thread of the sentry. The counts were 534
// for 255 sleeping processes, and 3 for each computing one.
func hostTasks(l sandbox.Limits) int {
	each := 2 + visibleCPUs(l.CPUs)
	return sentryTasks + each*(l.Processes+spareProcesses)
}

// hostTasks returns the limit on the host's tasks in force.
func (g *cgroup) hostTasks() (int, error) {
	s, err := g.read(pidsController, "pids.max")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

// cpuPeriod is the period of the CPU limit, in microseconds.
const cpuPeriod = 100_000

type setting struct {
	controller, file, value string
	optional                bool // some kernels lack the file
}

// settings returns the files and values that set the limits, in order. A box may
// save the unused CPU time of one period and use it at once. Starting a program is
// a burst of work on several threads. Without the burst, the box would be stopped
// for the rest of a period, which delays the program by tens of milliseconds.
func (g *cgroup) settings(l groupLimits) []setting {
	quota := strconv.Itoa(int(math.Round(l.cpus * cpuPeriod)))
	memory := strconv.FormatInt(l.memory, 10)
	var all []setting
	if g.V2 {
		all = []setting{
			{cpuController, "cpu.max", quota + " " + strconv.Itoa(cpuPeriod), false},
			{cpuController, "cpu.max.burst", quota, true},
			{memoryController, "memory.max", memory, false},
			{memoryController, "memory.swap.max", "0", true},
			{pidsController, "pids.max", strconv.Itoa(l.tasks), false},
		}
	} else {
		all = []setting{
			{cpuController, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
			{cpuController, "cpu.cfs_quota_us", quota, false},
			{cpuController, "cpu.cfs_burst_us", quota, true},
			{memoryController, "memory.limit_in_bytes", memory, false},
			{memoryController, "memory.memsw.limit_in_bytes", memory, true},
			{pidsController, "pids.max", strconv.Itoa(l.tasks), false},
		}
	}
	kept := all[:0]
	for _, s := range all {
		if g.Dirs[s.controller] != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// add moves a process, with all its threads, into the group.
func (g *cgroup) add(pid int) error {
	seen := map[string]bool{}
	for _, dir := range g.Dirs {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process into its control group: %w", err)
		}
	}
	return nil
}

// read returns the content of a controller's file.
func (g *cgroup) read(controller, file string) (string, error) {
	if g == nil || g.Dirs[controller] == "" {
		return "", fs.ErrNotExist
	}
	data, err := os.ReadFile(filepath.Join(g.Dirs[controller], file))
	return strings.TrimSpace(string(data)), err
}

// cpus returns the CPU limit in force.
func (g *cgroup) cpus() (float64, error) {
	var quota, period string
	var err error
	if g.V2 {
		var s string
		s, err = g.read(cpuController, "cpu.max")
		quota, period, _ = strings.Cut(s, " ")
	} else {
		if quota, err = g.read(cpuController, "cpu.cfs_quota_us"); err == nil {
			period, err = g.read(cpuController, "cpu.cfs_period_us")
		}
	}
	if err != nil {
		return 0, err
	}
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, fmt.Errorf("no CPU limit in %q of %q", quota, period)
	}
	return q / p, nil
}

// cpuBurst returns how much CPU time the group may save and use at once beyond its
// limit.
func (g *cgroup) cpuBurst() time.Duration {
	file := "cpu.cfs_burst_us"
	if g.V2 {
		file = "cpu.max.burst"
	}
	s, err := g.read(cpuController, file)
	if err != nil {
		return 0 // the host kernel has no bursts
	}
	us, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// memory returns the memory limit in force, in bytes.
func (g *cgroup) memory() (int64, error) {
	file := "memory.limit_in_bytes"
	if g.V2 {
		file = "memory.max"
	}
	s, err := g.read(memoryController, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}

// memoryKills returns the number of OOM kills of the host kernel in the group.
func (g *cgroup) memoryKills() (int, error) {
	file := "memory.oom_control"
	if g.V2 {
		file = "memory.events"
	}
	s, err := g.read(memoryController, file)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(strings.NewReader(s))
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, nil
}

// remove removes the group, whose processes have ended. The host kernel may notice
// their end a moment later, so remove retries for a while.
func (g *cgroup) remove() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, dir := range g.Dirs {
		err := unix.Rmdir(dir)
		for deadline := time.Now().Add(10 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
			err = unix.Rmdir(dir)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove control group: %w", err))
			continue
		}
		// The parent is removed with its last box.
		_ = unix.Rmdir(filepath.Dir(dir))
	}
	return errors.Join(errs...)
}

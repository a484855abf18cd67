package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The controllers that confine boxes, if they are available.
const (
	CPU    = "cpu"
	Memory = "memory"
	PIDs   = "pids"
	// CPUAcct only counts, and exists in version 1.
	CPUAcct = "cpuacct"
)

// Limits are the limits of one box's group.
type Limits struct {
	CPUs   float64
	Memory int64 // bytes
	Tasks  int   // processes and threads of the host
}

// A Group is one box's group, in every hierarchy. It is plain data, so it can be
// stored and used by another process.
type Group struct {
	V2   bool              `json:"v2"`
	Dirs map[string]string `json:"dirs"` // by controller
}

// Tasks returns the limit on the host's tasks in force.
func (g *Group) Tasks() (int, error) {
	s, err := g.read(PIDs, "pids.max")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

// Period is the period of the CPU limit, in microseconds.
const Period = 100_000

type setting struct {
	controller, file, value string
	optional                bool // some kernels lack the file
}

// settings returns the files and values that set the limits, in order. A box may
// save the unused CPU time of one period and use it at once. Starting a program is
// a burst of work on several threads. Without the burst, the box would be stopped
// for the rest of a period, which delays the program by tens of milliseconds.
func (g *Group) settings(l Limits) []setting {
	quota := strconv.Itoa(int(math.Round(l.CPUs * Period)))
	memory := strconv.FormatInt(l.Memory, 10)
	var all []setting
	if g.V2 {
		all = []setting{
			{CPU, "cpu.max", quota + " " + strconv.Itoa(Period), false},
			{CPU, "cpu.max.burst", quota, true},
			{Memory, "memory.max", memory, false},
			{Memory, "memory.swap.max", "0", true},
			{PIDs, "pids.max", strconv.Itoa(l.Tasks), false},
		}
	} else {
		all = []setting{
			{CPU, "cpu.cfs_period_us", strconv.Itoa(Period), false},
			{CPU, "cpu.cfs_quota_us", quota, false},
			{CPU, "cpu.cfs_burst_us", quota, true},
			{Memory, "memory.limit_in_bytes", memory, false},
			{Memory, "memory.memsw.limit_in_bytes", memory, true},
			{PIDs, "pids.max", strconv.Itoa(l.Tasks), false},
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

// Add moves a process, with all its threads, into the group.
func (g *Group) Add(pid int) error {
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
func (g *Group) read(controller, file string) (string, error) {
	if g == nil || g.Dirs[controller] == "" {
		return "", fs.ErrNotExist
	}
	data, err := os.ReadFile(filepath.Join(g.Dirs[controller], file))
	return strings.TrimSpace(string(data)), err
}

// CPUs returns the CPU limit in force.
func (g *Group) CPUs() (float64, error) {
	var quota, period string
	var err error
	if g.V2 {
		var s string
		s, err = g.read(CPU, "cpu.max")
		quota, period, _ = strings.Cut(s, " ")
	} else {
		if quota, err = g.read(CPU, "cpu.cfs_quota_us"); err == nil {
			period, err = g.read(CPU, "cpu.cfs_period_us")
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

// CPUBurst returns how much CPU time the group may save and use at once beyond its
// limit.
func (g *Group) CPUBurst() time.Duration {
	file := "cpu.cfs_burst_us"
	if g.V2 {
		file = "cpu.max.burst"
	}
	s, err := g.read(CPU, file)
	if err != nil {
		return 0 // the host kernel has no bursts
	}
	us, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// Memory returns the memory limit in force, in bytes.
func (g *Group) Memory() (int64, error) {
	file := "memory.limit_in_bytes"
	if g.V2 {
		file = "memory.max"
	}
	s, err := g.read(Memory, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}

// MemoryUsed returns the memory in use, in bytes, without files that the host kernel
// can drop. The error wraps [fs.ErrNotExist] if the group does not count it.
func (g *Group) MemoryUsed() (int64, error) {
	if g == nil {
		return 0, fs.ErrNotExist
	}
	file, idle := "memory.usage_in_bytes", "total_inactive_file "
	if g.V2 {
		file, idle = "memory.current", "inactive_file "
	}
	s, err := g.read(Memory, file)
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, err
	}
	stat, err := g.read(Memory, "memory.stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(stat) {
		if text, ok := strings.CutPrefix(line, idle); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return max(0, used-n), err
		}
	}
	return used, nil
}

// CPUTime returns the CPU time that the processes of the group have used. The error
// wraps [fs.ErrNotExist] if the group does not count it.
func (g *Group) CPUTime() (time.Duration, error) {
	if g == nil {
		return 0, fs.ErrNotExist
	}
	if !g.V2 {
		s, err := g.read(CPUAcct, "cpuacct.usage")
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(s, 10, 64)
		return time.Duration(ns), err
	}
	s, err := g.read(CPU, "cpu.stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(s) {
		if text, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fs.ErrNotExist
}

// SetMemory changes the memory limit, if the group has one.
func (g *Group) SetMemory(bytes int64) error {
	if g == nil || g.Dirs[Memory] == "" {
		return nil
	}
	write := func(file string) error {
		return os.WriteFile(filepath.Join(g.Dirs[Memory], file), []byte(strconv.FormatInt(bytes, 10)), 0)
	}
	if g.V2 {
		return write("memory.max")
	}
	// The limit may not exceed the one with swap, so that one is changed first to
	// raise both, and last to lower them. Not every host kernel has it.
	if err := write("memory.limit_in_bytes"); err == nil {
		_ = write("memory.memsw.limit_in_bytes")
		return nil
	}
	_ = write("memory.memsw.limit_in_bytes")
	return write("memory.limit_in_bytes")
}

// MemoryKills returns the number of OOM kills of the host kernel in the group.
func (g *Group) MemoryKills() (int, error) {
	file := "memory.oom_control"
	if g.V2 {
		file = "memory.events"
	}
	s, err := g.read(Memory, file)
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

// Remove removes the group, whose processes have ended. The host kernel may notice
// their end a moment later, so remove retries for a while.
func (g *Group) Remove() error {
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

// Name returns the name of the file with a limit, for display.
func (g *Group) Name(v1, v2 string) string {
	if g != nil && g.V2 {
		return "cgroup v2 " + v2
	}
	return "cgroup v1 " + v1
}

// Holds reports whether a process is in the group of a controller.
func (g *Group) Holds(pid int, controller string) bool {
	procs, err := g.read(controller, "cgroup.procs")
	if err != nil {
		return false
	}
	want := strconv.Itoa(pid)
	for pid := range strings.FieldsSeq(procs) {
		if pid == want {
			return true
		}
	}
	return false
}

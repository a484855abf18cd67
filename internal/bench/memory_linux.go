package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// memoryOf returns the memory of a sandbox's processes on this machine, in
// bytes. It is the sum of their proportional set sizes, which divide shared
// memory among its users. The processes are those with the sandbox's ID on their
// command line, and their descendants. ok is false if there are none, for
// example with a remote driver.
func memoryOf(id string) (size int64, ok bool) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, false
	}
	parents := map[string]string{}
	var found []string
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it ended
		}
		pid := filepath.Base(dir)
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 1 {
			parents[pid] = fields[1]
		}
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && pid != strconv.Itoa(os.Getpid()) && bytes.Contains(line, []byte(id)) {
			found = append(found, pid)
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, parent := range parents {
			if slices.Contains(found, parent) && !slices.Contains(found, pid) {
				found, grown = append(found, pid), true
			}
		}
	}
	for _, pid := range found {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					size += kb << 10
				}
			}
		}
	}
	return size, size > 0
}

// ownMemory returns the memory of this process in bytes, or 0 if it is unknown.
func ownMemory() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// hardware returns the processor's name and the machine's memory in bytes.
func hardware() (cpu string, memory int64) {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 && f[0] == "MemTotal:" {
			if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				memory = kb << 10
			}
		}
	}
	return cpu, memory
}

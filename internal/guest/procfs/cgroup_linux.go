package procfs

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// groupDir is where a sandbox sees its own control group, if it can.
const groupDir = "/sys/fs/cgroup/"

// groupFile reads a file of the sandbox's control group, by its name in version
// 2 or in version 1. It returns "" if there is no such file.
func groupFile(v2, v1 string) string {
	var buf [1024]byte
	for _, name := range []string{v2, v1} {
		if name == "" {
			continue
		}
		if n := ReadSmall(groupDir+name, buf[:]); n > 0 {
			return string(bytes.TrimSpace(buf[:n]))
		}
	}
	return ""
}

// groupNumber reads a number; 0 is no file, and no limit.
func groupNumber(v2, v1 string) int64 {
	n, err := strconv.ParseInt(groupFile(v2, v1), 10, 64)
	const noLimit = 1 << 60 // version 1 writes a very large number
	if err != nil || n < 0 || n >= noLimit {
		return 0
	}
	return n
}

// groupCount returns the counter name of a file with one counter per line.
func groupCount(text, name string) int {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// MemoryKills returns how many processes were OOM-killed, or 0 if the sandbox
// cannot see its control group.
func MemoryKills() int {
	return groupCount(groupFile("memory.events", "memory/memory.oom_control"), "oom_kill")
}

// ForkRefusals returns how many forks were refused at the limit on processes, or
// 0 if the sandbox cannot see its control group.
func ForkRefusals() int {
	return groupCount(groupFile("pids.events", "pids/pids.events"), "max")
}

// ReadGroup reads the sandbox's control group into g.
func ReadGroup(g *guestapi.Group) {
	g.CPUs = groupCPUs()
	g.MemoryBytes = groupNumber("memory.max", "memory/memory.limit_in_bytes")
	g.SwapBytes = groupSwap()
	g.Processes = groupNumber("pids.max", "pids/pids.max")
	g.MemoryKills, g.ProcessRefusals = MemoryKills(), ForkRefusals()
}

// groupCPUs returns the limit on processor time in CPUs, 0 for no limit.
func groupCPUs() float64 {
	quota, period := groupFile("cpu.max", ""), ""
	if quota != "" {
		quota, period, _ = strings.Cut(quota, " ")
	} else {
		quota, period = groupFile("", "cpu/cpu.cfs_quota_us"), groupFile("", "cpu/cpu.cfs_period_us")
	}
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}

// groupSwap returns the limit on swap in bytes: 0 is no swap, -1 no limit.
func groupSwap() int64 {
	if text := groupFile("memory.swap.max", ""); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		return -1
	}
	memory := groupNumber("", "memory/memory.limit_in_bytes")
	if both := groupNumber("", "memory/memory.memsw.limit_in_bytes"); memory > 0 && both > 0 {
		return both - memory
	}
	return -1
}

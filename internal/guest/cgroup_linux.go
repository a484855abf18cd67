package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
		if n := readSmall(groupDir+name, buf[:]); n > 0 {
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

// readOOMKills returns how many processes were OOM-killed, or 0 if the sandbox
// cannot see its control group.
func readOOMKills() int {
	return groupCount(groupFile("memory.events", "memory/memory.oom_control"), "oom_kill")
}

// readRefusals returns how many forks were refused at the limit on processes, or
// 0 if the sandbox cannot see its control group.
func readRefusals() int {
	return groupCount(groupFile("pids.events", "pids/pids.events"), "max")
}

// readGroup reads the sandbox's control group into g.
func readGroup(g *guestapi.Group) {
	g.CPUs = groupCPUs()
	g.MemoryBytes = groupNumber("memory.max", "memory/memory.limit_in_bytes")
	g.SwapBytes = groupSwap()
	g.Processes = groupNumber("pids.max", "pids/pids.max")
	g.MemoryKills, g.ProcessRefusals = readOOMKills(), readRefusals()
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

// maxMounts bounds the mounts in a reply.
const maxMounts = 256

// readMounts returns the file systems that are mounted.
func readMounts() ([]guestapi.Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []guestapi.Mount
	for line := range strings.Lines(string(text)) {
		// id parent device root path options [optional ...] - type source super
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 || len(all) == maxMounts {
			continue
		}
		m := guestapi.Mount{Path: unescapeMount(f[4]), Type: g[0], Device: f[2]}
		m.ReadOnly = hasOption(f[5], "ro") || hasOption(g[2], "ro")
		var st unix.Statfs_t
		if unix.Statfs(m.Path, &st) == nil {
			m.Bytes = int64(st.Blocks) * st.Bsize
		}
		all = append(all, m)
	}
	return all, nil
}

// unescapeMount undoes the escapes of the OS kernel in a mount's path.
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

func hasOption(list, name string) bool {
	for o := range strings.SplitSeq(list, ",") {
		if o == name {
			return true
		}
	}
	return false
}

package allowance

import (
	"math"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// SpareProcesses is the number of processes and threads above the limit that the
// guest may have: its threads, its connectors, and programs that it starts while
// others use the whole limit. It is bounded, because sandbox-root can trace the
// guest and make it fork.
const SpareProcesses = 128

// SentryMemory is the sentry's allowance for itself, in bytes: about 10 MiB at rest,
// and more during a garbage collection.
const SentryMemory = 48 << 20

// sentryTasks is the allowance for the host threads of a sentry without programs.
// 16 were counted.
const sentryTasks = 64

// NetworkMemory is the basic memory use of a network process, in bytes. The group
// of a box with a network gets this much more. Memory that connections take beyond
// it counts as the box's.
const NetworkMemory = 32 << 20

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
	each := 2 + VisibleCPUs(l.CPUs)
	return sentryTasks + each*(l.Processes+SpareProcesses)
}

// VisibleCPUs returns the number of processors that the programs of a box see. It
// is at least two: with one, programs omit locks that they need, because their
// threads run in parallel on the host.
func VisibleCPUs(limit float64) int { return max(2, int(math.Ceil(limit))) }

// Group returns the limits of the control group of a box with these limits. linked
// means that the box has a network process.
func Group(l sandbox.Limits, linked bool) cgroup.Limits {
	g := cgroup.Limits{CPUs: l.CPUs, Memory: l.MemoryBytes, Tasks: hostTasks(l)}
	if linked {
		g.Memory += NetworkMemory
		g.Tasks += networkTasks
	}
	return g
}

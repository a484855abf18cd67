package gvisor

import (
	"encoding/json"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/gomaxprocs"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/allowance"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// Reexec must be the first call of main. In a helper process of the driver, it
// executes the helper and does not return. In any other process, it returns at
// once.
func Reexec() {
	if helper := os.Args[0]; helper == message.SupervisorName || helper == network.ProcessName || helper == "runsc-sandbox" {
		runtime.MemProfileRate = 0 // no memory profile of a helper is read
	}
	switch {
	case os.Args[0] == message.SupervisorName:
		closeInherited(makerFDs(os.Args[1:]))
		os.Exit(makerMain(os.Args[1:]))
	case os.Args[0] == network.ProcessName:
		closeInherited(network.KeptFDs())
		os.Exit(network.Main())
	case os.Args[0] == "runsc-sandbox":
		closeInherited(donated(os.Args))
		spec := openedSpec(os.Args)
		if spec != nil {
			os.Args = sandboxArgs(os.Args, spec)
			useKernelFilter(spec)
		}
		startWithLittleGC()
		kernelMain(spec)
	default:
		return
	}
	os.Exit(1)
}

// startWithLittleGC makes garbage collections rare until this helper has started,
// because most of the memory allocated meanwhile stays in use.
func startWithLittleGC() {
	usual := debug.SetGCPercent(startGCPercent)
	time.AfterFunc(startTime, func() { debug.SetGCPercent(usual) })
}

const (
	// startGCPercent allows about 16 MB of allocations before the first collection.
	startGCPercent = 400
	// startTime is an upper bound of a helper's start time.
	startTime = 2 * time.Second
)

// spareProcessors is the number of processors of a sentry's Go scheduler in
// addition to those that programs see. A thread in a system call keeps its
// processor until the scheduler's monitor takes it away. On an idle sentry, the
// monitor runs every ten milliseconds. After a pause, all threads of the sentry
// return from such a call and begin another. Without spare processors, the thread
// that wakes the sentry waits for the monitor every other time. They are
// added at the first pause, because each processor in use at the start keeps memory
// of its own.
const spareProcessors = 2

// giveBackSignal requests a garbage collection from a sentry. gVisor does not pass
// this signal on to programs. A Go program that is not registered for it, such as a
// sentry of an earlier version, ignores it.
const giveBackSignal = unix.Signal(40)

// giveBackWhenAsked makes this process collect garbage at each giveBackSignal. The
// first signal also adds the spare processors.
func giveBackWhenAsked() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, giveBackSignal)
	go func() {
		spare := sync.OnceFunc(func() { gomaxprocs.Add(spareProcessors) })
		for range asked {
			debug.FreeOSMemory()
			spare()
		}
	}()
}

// fdFlag matches the flags that name the descriptors of gVisor's processes.
var fdFlag = regexp.MustCompile(`^--?[a-z-]*fds?=(.*)$`)

// donated returns the descriptors in args.
func donated(args []string) map[int]bool {
	fds := map[int]bool{}
	for _, a := range args {
		m := fdFlag.FindStringSubmatch(a)
		if m == nil {
			continue
		}
		// A flag contains one number or several, in one of several forms. The
		// second number of a pair M:N is not a descriptor of this process; keeping
		// it does no harm.
		for s := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r < '0' || r > '9' }) {
			if fd, err := strconv.Atoi(s); err == nil {
				fds[fd] = true
			}
		}
	}
	return fds
}

// sandboxArgs makes the sentry show its programs the memory and the processors that
// they may use, because programs size heaps and thread pools by them. gVisor itself
// does this only for a cgroup that it made. The limits are those of the box's
// specification.
func sandboxArgs(args []string, spec *specs.Spec) []string {
	mem, cpus := limitsOf(spec)
	args = slices.Clone(args)
	for i := 0; i+1 < len(args); i++ {
		if args[i] == "--total-memory" && mem > 0 {
			args[i+1] = strconv.FormatInt(mem, 10)
		}
	}
	if at := slices.Index(args, "boot"); at >= 0 && cpus > 0 && !slices.Contains(args, "--cpu-num") {
		args = slices.Insert(args, at+1, "--cpu-num", strconv.Itoa(cpus))
	}
	return args
}

// openedSpec reads the specification from the descriptor that the process received.
// It does not move the file's offset. It returns nil if there is none.
func openedSpec(args []string) *specs.Spec {
	fd := -1
	for _, a := range args {
		if s, found := strings.CutPrefix(a, "--spec-fd="); found {
			fd, _ = strconv.Atoi(s)
		}
	}
	if fd < 3 {
		return nil
	}
	// Pread leaves the offset unchanged. The process has no right to open the file
	// again.
	data := make([]byte, 1<<20)
	n, err := unix.Pread(fd, data, 0)
	if err != nil {
		return nil
	}
	var spec specs.Spec
	if err := json.Unmarshal(data[:n], &spec); err != nil {
		return nil
	}
	return &spec
}

// limitsOf returns the limits of a specification; 0 means no limit.
func limitsOf(spec *specs.Spec) (mem int64, cpus int) {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return 0, 0
	}
	r := spec.Linux.Resources
	if r.Memory != nil && r.Memory.Limit != nil {
		mem = *r.Memory.Limit
	}
	if r.CPU != nil && r.CPU.Quota != nil && r.CPU.Period != nil && *r.CPU.Period > 0 {
		cpus = allowance.VisibleCPUs(float64(*r.CPU.Quota) / float64(*r.CPU.Period))
	}
	return mem, cpus
}

package gvisor

import (
	"encoding/json"
	"math"
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

	"github.com/glovebox-dev/glovebox/internal/network"
)

// makerName is what the maker is called in its first argument.
const makerName = "glovebox-maker"

// Reexec must be the first call of main. In a process that the driver started as a
// helper, it does that helper's work and never returns; in any other it returns at
// once.
func Reexec() {
	if helper := os.Args[0]; helper == makerName || helper == network.ProcessName || helper == "runsc-sandbox" {
		runtime.MemProfileRate = 0 // nobody asks a helper for it
	}
	switch {
	case os.Args[0] == makerName:
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

// startWithLittleGC makes garbage collection rare until this helper has started:
// what it makes meanwhile mostly stays.
func startWithLittleGC() {
	usual := debug.SetGCPercent(startGCPercent)
	time.AfterFunc(startTime, func() { debug.SetGCPercent(usual) })
}

const (
	// startGCPercent lets some 16 MB be made before the first collection.
	startGCPercent = 400
	// startTime is how long a helper takes to start, and more.
	startTime = 2 * time.Second
)

// spareProcessors are what a sentry's Go scheduler has beyond those that programs
// see. A thread that waits in a system call keeps its processor until the
// scheduler's watch takes it away, which looks every ten milliseconds where
// nothing goes on. A sentry that was stopped goes on with threads that all return
// from such a wait, and begin another: with no processor to spare, what wakes it
// waited for the watch every other time. They come with the first stop, as each
// processor that takes part in a start keeps memory of its own.
const spareProcessors = 2

// giveBackSignal asks a sentry to give memory back that it does not use. It is
// none of the signals that gVisor hands on to programs, and a program of Go that
// does not wait for it, as a sentry of an earlier version, ignores it.
const giveBackSignal = unix.Signal(40)

// giveBackWhenAsked has this process collect its garbage at each such signal,
// and from the first one on have processors to spare.
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

// fdFlag matches the flags by which gVisor's processes learn their descriptors.
var fdFlag = regexp.MustCompile(`^--?[a-z-]*fds?=(.*)$`)

// donated returns the descriptors that args name.
func donated(args []string) map[int]bool {
	fds := map[int]bool{}
	for _, a := range args {
		m := fdFlag.FindStringSubmatch(a)
		if m == nil {
			continue
		}
		// One number or several, in one of several forms. Of a pair, M:N, the
		// second is not the process's own; keeping it too does no harm.
		for s := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r < '0' || r > '9' }) {
			if fd, err := strconv.Atoi(s); err == nil {
				fds[fd] = true
			}
		}
	}
	return fds
}

// sandboxArgs makes the sentry show its programs the memory and the processors
// that they may use, where gVisor would only do so for a cgroup of its own
// making: programs size their heaps and thread pools by what they see. The
// limits are those of the box's own specification.
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

// openedSpec reads the specification that the process was given as an open
// file, without moving that file's offset, or returns nil.
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
	// The descriptor is read at a place, so that its offset stays, and never
	// opened anew: this process may not.
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

// limitsOf returns the limits of a specification, 0 for what has none.
func limitsOf(spec *specs.Spec) (mem int64, cpus int) {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return 0, 0
	}
	r := spec.Linux.Resources
	if r.Memory != nil && r.Memory.Limit != nil {
		mem = *r.Memory.Limit
	}
	if r.CPU != nil && r.CPU.Quota != nil && r.CPU.Period != nil && *r.CPU.Period > 0 {
		cpus = visibleCPUs(float64(*r.CPU.Quota) / float64(*r.CPU.Period))
	}
	return mem, cpus
}

// visibleCPUs returns how many processors the programs of a box see: two at
// least, since with one they leave out locks that they need, because threads do
// run at the same time on the host.
func visibleCPUs(limit float64) int { return max(2, int(math.Ceil(limit))) }

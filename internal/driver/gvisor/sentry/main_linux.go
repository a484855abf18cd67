package sentry

import (
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// ProcessName is the first argument of a sentry's process, which gVisor chooses.
const ProcessName = "runsc-sandbox"

// Main is the main function of the sentry's process, with all its arguments. It
// returns only if the sentry cannot start.
func Main(args []string) int {
	spec := openedSpec(args)
	if spec != nil {
		os.Args = sandboxArgs(args, spec)
		useKernelFilter(spec)
	}
	startWithLittleGC()
	kernelMain(spec)
	return 1
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

// fdFlag matches the flags that name the descriptors of gVisor's processes.
var fdFlag = regexp.MustCompile(`^--?[a-z-]*fds?=(.*)$`)

// KeptFDs returns the descriptors in args, which a sentry receives.
func KeptFDs(args []string) map[int]bool {
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

package gvisor

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

//go:linkname latencyMonitoring gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencyMonitoring
var latencyMonitoring sync.Once

//go:linkname controlFastPath gvisor.dev/gvisor/pkg/sentry/platform/systrap.controlFastPath
func controlFastPath()

const (
	// pollAfter is how much processor time a kernel has taken since its first
	// program began before it may poll: twice what it takes for a sandbox that
	// runs a few lines.
	pollAfter = 150 * time.Millisecond
	// pollLook is how often a kernel looks whether it works, and pollWork how
	// much processor time it takes meanwhile if it does.
	pollLook = 50 * time.Millisecond
	pollWork = 20 * time.Millisecond
)

// pollLate keeps the kernel from polling for the system calls of its programs, and
// them for its answers, as gVisor has it from the start: see pollWhenBusy.
func pollLate() { latencyMonitoring.Do(func() {}) }

// pollWhenBusy has gVisor begin to poll once the kernel has much to do. Where a
// processor is free that makes a system call several times as fast; but gVisor
// tries whether one is, 2,500 times a second, and with many sandboxes that start
// at the same time that and the polling took a sixth of the processors. The
// platform must be there.
func pollWhenBusy() {
	began, err := processorTime()
	for before := began; err == nil; {
		time.Sleep(pollLook)
		var now time.Duration
		now, err = processorTime()
		if now-began > pollAfter && now-before > pollWork {
			break
		}
		before = now
	}
	controlFastPath() // which does not return
}

// processorTime is what this process has taken.
func processorTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

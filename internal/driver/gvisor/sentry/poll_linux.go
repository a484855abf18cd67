package sentry

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
	// pollAfter is the processor time that a sentry must have used since its first
	// program began before it may poll. It is twice the need of a sandbox that runs
	// a few lines.
	pollAfter = 150 * time.Millisecond
	// pollLook is the interval at which the sentry measures its processor time. If
	// it used pollWork in an interval, it is busy.
	pollLook = 50 * time.Millisecond
	pollWork = 20 * time.Millisecond
)

// pollLate prevents polling from the start, which is gVisor's default: the sentry
// polls for system calls of programs, and programs poll for its answers. See
// pollWhenBusy.
func pollLate() { latencyMonitoring.Do(func() {}) }

// pollWhenBusy makes gVisor start polling when the sentry is busy. With a free
// processor, polling makes a system call several times as fast. But gVisor tests
// for a free processor 2,500 times a second. When many sandboxes started at the
// same time, tests and polling took a sixth of the processors. The platform must
// exist.
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
	controlFastPath() // does not return
}

// processorTime returns the processor time of this process.
func processorTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano()), err
}

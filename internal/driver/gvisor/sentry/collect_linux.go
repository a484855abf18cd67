package sentry

import (
	"os"
	"os/signal"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
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

// GiveBackSignal requests a garbage collection from a sentry. gVisor does not pass
// this signal on to programs. A Go program that is not registered for it, such as a
// sentry of an earlier version, ignores it.
const GiveBackSignal = unix.Signal(40)

// giveBackWhenAsked makes this process collect garbage at each GiveBackSignal. The
// first signal also adds the spare processors.
func giveBackWhenAsked() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, GiveBackSignal)
	go func() {
		spare := sync.OnceFunc(func() { gomaxprocs.Add(spareProcessors) })
		for range asked {
			debug.FreeOSMemory()
			spare()
		}
	}()
}

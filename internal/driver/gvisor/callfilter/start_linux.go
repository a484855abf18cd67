package callfilter

import (
	"os/exec"
	"runtime"
)

// Start starts cmd with a seccomp filter that it and its descendants
// inherit.
//
// membarrier(2) returns ENOSYS. A package of gVisor registers for it at start,
// which takes some ten milliseconds in each process of a box and has no benefit
// there. Without the call, the package uses another way.
//
// The filter refuses to set the set-user-ID and set-group-ID bits of a file on the
// host. Only workspaces have files on the host. A sandbox must not leave programs
// there that run with the rights of their owner or group.
//
// The filter refuses to make the CPUID instruction trap, as a processor that cannot:
// every program executes it dozens of times at its start.
//
// Calls of other architectures answer ENOSYS, as on a kernel without them. A 64-bit
// program can make those of 32-bit programs too, which have other numbers.
//
// The filter stays on the thread that forks, so that thread ends here.
func Start(cmd *exec.Cmd) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := refuseCalls(); err != nil {
			errc <- err
			return
		}
		errc <- cmd.Start()
	}()
	return <-errc
}

package gvisor

import (
	"os"
	"runtime"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// Reexec must be the first call of main. In a helper process of the driver, it
// executes the helper and does not return. In any other process, it returns at
// once.
func Reexec() {
	switch os.Args[0] {
	case message.SupervisorName:
		help(makerFDs(os.Args[1:]))
		os.Exit(makerMain(os.Args[1:]))
	case network.ProcessName:
		help(network.KeptFDs())
		os.Exit(network.Main())
	case sentry.ProcessName:
		help(sentry.KeptFDs(os.Args))
		os.Exit(sentry.Main(os.Args))
	}
}

// help prepares this process for the work of a helper with these descriptors.
func help(keep map[int]bool) {
	runtime.MemProfileRate = 0 // no memory profile of a helper is read
	closeInherited(keep)
}

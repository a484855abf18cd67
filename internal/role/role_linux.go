package role

import (
	"os"
	"runtime"
)

// A Role is the work of one kind of helper process.
type Role struct {
	// Name is the first argument of the process.
	Name string
	// Keep returns the descriptors that a process with these arguments needs besides
	// the standard streams.
	Keep func(args []string) map[int]bool
	// Main is the main function of the process, with all its arguments. It returns
	// the exit status.
	Main func(args []string) int
}

// Run must be the first call of main. In a helper process, it executes its role and
// does not return. In any other process, it returns at once.
func Run(roles []Role) {
	for _, r := range roles {
		if os.Args[0] == r.Name {
			runtime.MemProfileRate = 0 // no memory profile of a helper is read
			closeInherited(r.Keep(os.Args))
			os.Exit(r.Main(os.Args))
		}
	}
}

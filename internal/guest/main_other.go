//go:build !linux

package guest

import (
	"fmt"
	"os"
)

// Run is [Main] with the program's name first in argv.
func Run(argv []string) int { return Main(argv[1:]) }

// Main prints that the guest needs Linux, and returns 1.
func Main(args []string) int {
	fmt.Fprintln(os.Stderr, "glovebox-guest: runs on Linux only")
	return 1
}

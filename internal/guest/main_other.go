//go:build !linux

package guest

import (
	"fmt"
	"os"
)

// Main prints that the guest needs Linux, and returns 1.
func Main(args []string) int {
	fmt.Fprintln(os.Stderr, "glovebox-guest: runs on Linux only")
	return 1
}

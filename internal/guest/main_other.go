//go:build !linux

package guest

import (
	"fmt"
	"os"
)

// Main says that the guest needs Linux.
func Main(args []string) int {
	fmt.Fprintln(os.Stderr, "glovebox-guest: runs on Linux only")
	return 1
}

// Command glovebox runs untrusted code in sealed sandboxes.
package main

import (
	"os"

	"github.com/glovebox-dev/glovebox/internal/cli"
)

func main() {
	// First, because this process may be a helper process or the guest.
	runRole()

	os.Exit(cli.Main(cli.Signals(), os.Args[0], os.Args[1:], cli.OS()))
}

//go:build !nogvisor

package main

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

// reexec does the work of a helper process of the sandbox, or of the guest
// where this program carries none, and does not return then.
func reexec() {
	gvisor.Reexec()
	if filepath.Base(os.Args[0]) == "glovebox-guest" {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

//go:build !nogvisor

package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

// guestNames are what the guest is called: inside a box, and as a file.
var guestNames = []string{"/.glovebox/guest", "glovebox-guest"}

// reexec does the work of a helper process of the sandbox, or of the guest
// where this program carries none, and does not return then.
func reexec() {
	gvisor.Reexec()
	if slices.Contains(guestNames, os.Args[0]) || slices.Contains(guestNames, filepath.Base(os.Args[0])) {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

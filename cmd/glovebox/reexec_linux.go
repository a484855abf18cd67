//go:build !nogvisor

package main

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

// reexec runs a helper process of a sandbox or the guest, if this process is
// one, and then does not return.
func reexec() {
	gvisor.Reexec()
	if filepath.Base(os.Args[0]) == "glovebox-guest" {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

//go:build !nogvisor

package app

import (
	"os"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
)

func reexec() {
	gvisor.Reexec()
	if os.Args[0] == "/.glovebox/guest" {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

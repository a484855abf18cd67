//go:build !nogvisor

package app

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
)

func reexec() {
	gvisor.Reexec()
	if filepath.Base(os.Args[0]) == guestbin.Name {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

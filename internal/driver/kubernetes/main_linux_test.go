package kubernetes_test

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// actAsOther makes this program the guest, or a network's process, if it was started
// as one. Guests and relays start themselves again by that name.
func actAsOther() {
	switch filepath.Base(os.Args[0]) {
	case guest.Program:
		os.Exit(guest.Run(os.Args))
	case network.ProcessName:
		os.Exit(network.Main())
	}
}

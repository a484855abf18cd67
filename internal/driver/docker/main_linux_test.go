package docker_test

import (
	"os"

	"github.com/glovebox-dev/glovebox/internal/network"
)

// carryNetwork makes this program a network's process if it was started as one.
func carryNetwork() {
	if os.Args[0] == network.ProcessName {
		os.Exit(network.Main())
	}
}

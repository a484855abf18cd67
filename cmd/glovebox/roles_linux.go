//go:build !nogvisor

package main

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/supervisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/role"
)

// roles are the roles of helper processes, by their first argument. Package network
// empties the bounding set of some of them before Go's runtime starts, by the same
// names.
var roles = []role.Role{
	{Name: message.SupervisorName, Keep: supervisor.KeptFDs, Main: supervisor.Main},
	{Name: message.EarlierSupervisorName, Keep: supervisor.KeptFDs, Main: supervisor.Main},
	{Name: sentry.ProcessName, Keep: sentry.KeptFDs, Main: sentry.Main},
	{Name: network.ProcessName, Keep: networkFDs, Main: networkMain},
}

func networkFDs([]string) map[int]bool { return network.KeptFDs() }

func networkMain([]string) int { return network.Main() }

// runRole runs a helper process of a sandbox or the guest, if this process is
// one, and then does not return.
func runRole() {
	role.Run(roles)
	// The guest's first argument may be a path.
	if filepath.Base(os.Args[0]) == guest.Program || guest.IsSudo(os.Args) {
		os.Exit(guest.Run(os.Args))
	}
}

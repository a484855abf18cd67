//go:build !nogvisor

package app

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/sentry"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/supervisor"
	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/role"
)

func reexec() {
	role.Run([]role.Role{
		{Name: message.SupervisorName, Keep: supervisor.KeptFDs, Main: supervisor.Main},
		{Name: sentry.ProcessName, Keep: sentry.KeptFDs, Main: sentry.Main},
		{
			Name: network.ProcessName,
			Keep: func([]string) map[int]bool { return network.KeptFDs() },
			Main: func([]string) int { return network.Main() },
		},
	})
	if filepath.Base(os.Args[0]) == guestbin.Name {
		os.Exit(guest.Main(os.Args[1:]))
	}
}

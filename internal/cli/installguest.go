package cli

import (
	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
)

// installGuestCommand installs the guest as its own command of that name says. It is for the init container of a Pod, and not for people.
func (p *program) installGuestCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "install-guest DIR [MODE:DIR]...",
		Short:  "Put the guest of sandboxes into a directory",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.InstallGuest(cmd.Context(), args[0], args[1:]...)
		},
	}
}

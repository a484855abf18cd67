package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
)

// installGuestCommand is the program of the init container of a Pod, and not for people. It
// installs the guest by the guest's own command of that name.
func (p *program) installGuestCommand() *cobra.Command {
	var resolvers string
	cmd := &cobra.Command{
		Use:    "install-guest DIR [MODE:DIR]...",
		Short:  "Put the guest of sandboxes into a directory",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.InstallGuest(cmd.Context(), resolvers, args[0], args[1:]...)
		},
	}
	cmd.Flags().StringVar(&resolvers, "resolver", "", "`addresses` of the DNS servers of a box with a network, separated by commas")
	return cmd
}

// probeNetworkCommand is the program of the Pods of doctor --probe, and not for people.
func (p *program) probeNetworkCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "probe-network [ADDRESS]",
		Short:  "Listen in a Pod, or dial another one",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := app.ProbeNetwork(cmd.Context(), strings.Join(args, ""), p.Getenv)
			if err != nil || status == 0 {
				return err
			}
			return &console.ExitError{Status: status}
		},
	}
}

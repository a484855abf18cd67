package install

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkClients reports for each client whether its configuration has Glovebox,
// and runs the client's own list command where there is one. Without names, it
// checks the installed clients. The error is of kind Unavailable if a client
// lacks Glovebox or cannot reach it.
func (k Commands) checkClients(ctx context.Context, env clientconfig.Environment, names []string, flags installFlags) error {
	clients, err := findClients(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		clients = slices.DeleteFunc(clientconfig.Clients(), func(c clientconfig.Client) bool { return c.ByHand() || !c.Installed(env) })
	}
	if len(clients) == 0 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "no MCP client was found on this machine"), "name one: %s", clientNames())
	}
	failed := 0
	for _, c := range clients {
		report, err := c.Ask(ctx, env, flags.scope(), flags.name)
		if err != nil {
			failed++
			report = err.Error()
			if hint := sandbox.HintOf(err); hint != "" {
				report += "; " + hint
			}
		}
		if err := k.Print("%s: %s\n", c.Title, report); err != nil {
			return err
		}
	}
	if failed > 0 {
		return sandbox.Errorf(sandbox.Unavailable, "%d of %d clients do not have a working %s", failed, len(clients), flags.name)
	}
	return nil
}

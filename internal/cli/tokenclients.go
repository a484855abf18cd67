package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) tokenClientsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "List the clients that people let in",
		Long: `List the clients that people let in on the sign-in page of glovebox serve --sign-in.
Each has access of its own, by the token that the person typed. glovebox token
revoke ID ends the access of one client. Revoking the token ends that of all its
clients.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withTokens(cmd, func(t *app.Tokens) error {
				list, err := t.Grants(cmd.Context())
				if err != nil {
					return err
				}
				return p.printGrants(list)
			})
		},
	}
	p.addJSON(cmd)
	return cmd
}

func (p *program) printGrants(list []sandbox.Grant) error {
	if p.flags.json {
		return p.PrintJSON(append([]sandbox.Grant{}, list...))
	}
	if len(list) == 0 {
		p.Say("no clients")
		return nil
	}
	now := time.Now()
	var rows [][]string
	for _, g := range list {
		rows = append(rows, []string{
			g.ClientName, strings.TrimPrefix(string(g.Principal), sandbox.TokenPrefix), strings.Join(g.Scopes, ","),
			console.Approximately(now.Sub(g.Created)) + " ago", console.Approximately(now.Sub(g.Used)) + " ago", g.ID,
		})
	}
	return p.PrintTable([]string{"CLIENT", "TOKEN", "SCOPES", "LET IN", "USED", "ID"}, rows)
}

// endGrant ends the access of a client.
func (p *program) endGrant(ctx context.Context, t *app.Tokens, id string) error {
	g, err := t.EndGrant(ctx, id)
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.WithHint(err, "list the clients with glovebox token clients")
	}
	if err != nil {
		return err
	}
	p.Say("ended the access of %s", g.ClientName)
	return nil
}

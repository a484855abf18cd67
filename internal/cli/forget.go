package cli

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) forgetCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget PRINCIPAL",
		Short: "Erase what Glovebox has about a principal",
		Long: `Show what the state directory has about a principal, and with --yes erase it for good:
its tokens and the access of clients, sandboxes, snapshots, runs with their output,
workspaces with their files, usage, limits, memberships of groups, and templates, whose
images go at the next sweep of a server. On a terminal, the command asks instead of
--yes.

The lines of the audit log stay, because each line has the hash of the one before; they
have no code, output or secrets. So do logs and traces that the server sent elsewhere.
The sums of groups no longer have what the principal used. A principal of an issuer can
come back with its next token: remove it at the issuer first.

If the command is interrupted, call it again: it finishes the work.`,
		Example: `  glovebox forget alice
  glovebox forget alice --yes
  glovebox forget 'oidc:https://login.example.com#ada' --yes`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("forget takes a principal"), "glovebox token list and glovebox usage list principals")
			}
			if err := checkAccountName(args[0]); err != nil {
				return err
			}
			who := principalOf(args[0])
			ctx := cmd.Context()
			sys, err := p.open(ctx, looks)
			if err != nil {
				return err
			}
			defer p.close(ctx, sys, &err)
			held, err := sys.Held(ctx, who)
			if err != nil {
				return err
			}
			if len(held) == 0 {
				return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is nothing about %s", who), "glovebox token list and glovebox usage list principals")
			}
			if !p.flags.json || !yes {
				if err := p.printHeld(who, held); err != nil {
					return err
				}
			}
			if !yes && !p.Asks("Erase all of this for good?") {
				p.Say("nothing was erased")
				p.Hint("erase it with glovebox forget " + args[0] + " --yes")
				return nil
			}
			erased, err := sys.Forget(ctx, who, func(step string) { p.Say("%s", step) })
			if err != nil {
				return sandbox.WithHint(err, "remedy this and call glovebox forget %s --yes again", args[0])
			}
			if p.flags.json {
				return p.PrintJSON(map[string]any{"principal": who, "erased": erased})
			}
			p.Say("erased what there was about %s; the audit log keeps its lines", who)
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "erase it, without a question")
	p.addJSON(cmd)
	return cmd
}

// printHeld prints the numbers of records about a principal.
func (p *program) printHeld(who sandbox.Principal, held app.Held) error {
	if p.flags.json {
		return p.PrintJSON(map[string]any{"principal": who, "would_erase": held})
	}
	var rows [][]string
	for _, kind := range slices.Sorted(maps.Keys(held)) {
		rows = append(rows, []string{strings.ReplaceAll(kind, "_", " "), strconv.FormatInt(held[kind], 10)})
	}
	return p.PrintTable([]string{"RECORDS", "NUMBER"}, rows)
}

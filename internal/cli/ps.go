package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List sandboxes",
		Long: `Ps lists the sandboxes that live: those of servers and of other commands that
share the state directory.`,
		Example: `  glovebox ps
  glovebox ps --json | jq -r '.[].sandbox_id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			sys, err := p.open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			list, err := sys.Sandboxes(cmd.Context())
			if err != nil {
				return err
			}
			if p.flags.json {
				if list == nil {
					list = []sandbox.Sandbox{}
				}
				return p.printJSON(list)
			}
			if len(list) == 0 {
				p.say("no sandboxes")
				return nil
			}
			now := time.Now()
			var rows [][]string
			for _, s := range list {
				rows = append(rows, []string{
					s.ID, s.Name, string(s.State), s.Driver, s.Image,
					approximately(now.Sub(s.Created)), approximately(s.Expires.Sub(now)),
				})
			}
			return p.printTable([]string{"SANDBOX", "NAME", "STATE", "DRIVER", "IMAGE", "AGE", "ENDS IN"}, rows)
		},
	}
	p.addJSON(cmd)
	return cmd
}

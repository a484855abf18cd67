package cli

import (
	"cmp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) networkCommand() *cobra.Command {
	limit, set := 100, ""
	cmd := &cobra.Command{
		Use:   "network [flags] SANDBOX",
		Short: "Show the connections of a sandbox, or change its network rules",
		Long: `List the ended and blocked connections of a sandbox, oldest first. Connections are
recorded when a run ends and when the sandbox ends.

With --set, replace the network rules of the sandbox. The rules must lie within
the rules that the process of the sandbox allows. Open connections that the new
rules do not allow are ended. A sandbox that was made without a network cannot get
one.`,
		Example: `  glovebox network sbx_k3v5...
  glovebox network --set pypi.org,files.pythonhosted.org sbx_k3v5...
  glovebox network --set none sbx_k3v5...
  glovebox network --json sbx_k3v5... | jq -r '.[] | select(.blocked) | .host'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("network needs one sandbox, but has %d arguments", len(args)), "list sandboxes with glovebox ps")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			sys, err := p.open(cmd.Context(), looks)
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			id := sandbox.CanonicalID(args[0])
			if set != "" {
				n, err := sandbox.ParseNetwork(set)
				if err != nil {
					return err
				}
				sb, err := sys.SetNetwork(cmd.Context(), id, n)
				if err == nil {
					p.Say("%s now has network %s", sb.ID, sb.Network)
				}
				return err
			}
			list, err := sys.Connections(cmd.Context(), id, limit)
			if err != nil {
				return err
			}
			if p.flags.json {
				if list == nil {
					list = []sandbox.Connection{}
				}
				return p.PrintJSON(list)
			}
			if len(list) == 0 {
				p.Say("no connections")
				return nil
			}
			var rows [][]string
			for _, c := range list {
				host, address, port := c.Host, "", ""
				if c.Address.IsValid() {
					address = c.Address.String()
				}
				if c.Port != 0 {
					port = strconv.Itoa(int(c.Port))
				}
				rows = append(rows, []string{
					c.Started.Local().Format("15:04:05"), string(c.Protocol), cmp.Or(host, "-"), cmp.Or(address, "-"), cmp.Or(port, "-"),
					sandbox.FormatBytes(c.Sent), sandbox.FormatBytes(c.Received), cmp.Or(string(c.Blocked), "-"),
				})
			}
			return p.PrintTable([]string{"TIME", "PROTOCOL", "HOST", "ADDRESS", "PORT", "SENT", "RECEIVED", "BLOCKED"}, rows)
		},
	}
	cmd.Flags().IntVarP(&limit, "tail", "n", limit, "show the latest `number` of connections")
	cmd.Flags().StringVar(&set, "set", "", "replace the network rules by these `rules`, as for run --network")
	p.addJSON(cmd)
	return cmd
}

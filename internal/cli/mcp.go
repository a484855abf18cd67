package cli

import (
	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) mcpCommand() *cobra.Command {
	var tools config.MCP
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve one MCP client over standard input and output",
		Long: `Serve the Model Context Protocol on standard input and output. An MCP client on
this machine starts this command itself. The sandboxes end with the command.

Add this to the client's configuration:

  {
    "mcpServers": {
      "glovebox": { "command": "glovebox", "args": ["mcp"] }
    }
  }`,
		Example: `  claude mcp add glovebox -- glovebox mcp
  npx @modelcontextprotocol/inspector --cli glovebox mcp --method tools/list`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if _, ok := console.Terminal(p.In); ok {
				p.Say("glovebox: waiting for an MCP client's messages on standard input; press Ctrl-C to leave")
			}
			p.flags.adjust = func(c *config.Config) error {
				applyTools(cmd, &c.MCP, tools)
				if cmd.Flags().Changed("allow-dir") {
					c.MCP.AllowDirs = tools.AllowDirs
				}
				c.MCP.AllowToolFiles = c.MCP.AllowToolFiles || tools.AllowToolFiles
				return nil
			}
			sys, err := p.open(cmd.Context(), func(o *app.Options) { o.Pool, o.Secrets = true, true })
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			p.sayFallback(sys)
			err = sys.ServeStdio(cmd.Context(), p.In, p.Out)
			if cmd.Context().Err() != nil {
				return nil // a signal is a normal end
			}
			return sandbox.Wrap(err, "serve MCP", "")
		},
	}
	toolFlags(cmd, &tools)
	cmd.Flags().StringArrayVar(&tools.AllowDirs, "allow-dir", nil, "let tools copy from and to this `directory` of this machine; may be repeated")
	cmd.Flags().BoolVar(&tools.AllowToolFiles, "allow-tool-files", false, "let tools write files there that programs on this machine execute or obey, such as .git")
	return cmd
}

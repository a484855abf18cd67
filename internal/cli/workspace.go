package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) workspaceCommand() *cobra.Command {
	var principal string
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "List, measure, export, import and delete workspaces",
		Long: `List, measure, export, import and delete workspaces. A workspace is a directory
that outlives sandboxes. A sandbox that was made with its name has it at /data.

Each principal has its own names. The commands use your workspaces unless
--principal names another principal; workspace list shows the principals.`,
		Example: `  glovebox run --workspace data -c 'open("f", "w").write("x")'
  glovebox workspace list
  glovebox workspace export data > data.tar
  tar -c . | glovebox workspace import data`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&principal, "principal", string(sandbox.Local), "`principal` that the workspace belongs to, such as token:NAME")
	with := func(do func(ctx context.Context, sys *app.System, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) (err error) {
			sys, err := p.open(cmd.Context(), func(o *app.Options) { o.Passive = true })
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			return do(cmd.Context(), sys, args)
		}
	}
	whose := func() sandbox.Principal { return sandbox.Principal(principal) }

	list := &cobra.Command{
		Use:   "list",
		Short: "List the workspaces of all principals",
		Args:  noArgs,
		RunE: with(func(ctx context.Context, sys *app.System, _ []string) error {
			list, err := sys.Workspaces(ctx)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.PrintJSON(list)
			}
			if len(list) == 0 {
				p.Say("no workspaces")
				return nil
			}
			var rows [][]string
			for _, w := range list {
				use := console.Approximately(time.Since(w.Used)) + " ago"
				if w.InUse {
					use = "now"
				}
				rows = append(rows, []string{w.Name, string(w.Principal), sandbox.FormatBytes(w.Usage.Bytes), use})
			}
			return p.PrintTable([]string{"WORKSPACE", "PRINCIPAL", "SIZE", "USED"}, rows)
		}),
	}
	show := &cobra.Command{
		Use:   "show NAME",
		Short: "Measure a workspace",
		Args:  between(1, 1),
		RunE: with(func(ctx context.Context, sys *app.System, args []string) error {
			w, err := sys.Engine.Workspace(ctx, whose(), args[0])
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.PrintJSON(w)
			}
			return p.Print("%s: %s in %d files; the limit is %s in %d files\n", w.Name,
				sandbox.FormatBytes(w.Usage.Bytes), w.Usage.Files, sandbox.FormatBytes(w.Quota.Bytes), w.Quota.Files)
		}),
	}
	export := &cobra.Command{
		Use:   "export NAME",
		Short: "Write a workspace to standard output as a tar archive",
		Args:  between(1, 1),
		RunE: with(func(ctx context.Context, sys *app.System, args []string) error {
			if _, seen := console.Terminal(p.Out); seen {
				return sandbox.WithHint(console.UsageError("standard output is a terminal, and the archive is binary"),
					"write it to a file: glovebox workspace export %s > %[1]s.tar", args[0])
			}
			return sys.Engine.ExportWorkspace(ctx, whose(), args[0], p.Out)
		}),
	}
	load := &cobra.Command{
		Use:   "import NAME [FILE]",
		Short: "Unpack a tar archive from standard input or a file into a workspace",
		Long: `Unpack a tar archive into a workspace. The archive may be compressed with gzip. A
workspace that does not exist is made. If an error occurs, the workspace does not
change.`,
		Args: between(1, 2),
		RunE: with(func(ctx context.Context, sys *app.System, args []string) error {
			var in io.Reader = p.In
			if len(args) == 2 {
				f, err := os.Open(args[1])
				if err != nil {
					return sandbox.Errorf(sandbox.Invalid, "%w", err)
				}
				defer f.Close()
				in = f
			}
			return sys.Engine.ImportWorkspace(ctx, whose(), args[0], in)
		}),
	}
	remove := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a workspace with all its files",
		Args:  between(1, 1),
		RunE: with(func(ctx context.Context, sys *app.System, args []string) error {
			return sys.Engine.DeleteWorkspace(ctx, whose(), args[0])
		}),
	}
	p.addJSON(list)
	p.addJSON(show)
	cmd.AddCommand(list, show, export, load, remove)
	return cmd
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs RUN | SANDBOX",
		Short: "Show the output of runs",
		Long: `Logs shows what a run wrote, or what every run of a sandbox wrote, one after the
other: standard output to standard output, standard error to standard error.
Output is kept for a while after the sandbox has stopped.`,
		Example: `  glovebox logs run_7mq2...
  glovebox logs sbx_k3v5... 2>errors.txt
  glovebox logs --follow run_7mq2...`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(usageError("name one run or one sandbox"), "glovebox ps lists sandboxes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx := cmd.Context()
			sys, err := p.open(ctx, looks)
			if err != nil {
				return err
			}
			defer p.close(ctx, sys, &err)
			return sys.Logs(ctx, args[0], follow, p.write)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	return cmd
}

// write copies a run's output to standard output or standard error.
func (p *program) write(stream sandbox.StreamName, data []byte) error {
	w := p.Out
	if stream == sandbox.Stderr {
		w = p.Err
	}
	_, err := w.Write(data)
	return err
}

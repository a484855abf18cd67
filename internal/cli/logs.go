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
		Long: `Show the output of a run, or of every run of a sandbox in turn. Standard output
goes to standard output, and standard error to standard error. Glovebox keeps the
output for some time after the sandbox has stopped.`,
		Example: `  glovebox logs run_7mq2...
  glovebox logs sbx_k3v5... 2>errors.txt
  glovebox logs --follow run_7mq2...`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(usageError("logs needs one run or one sandbox"), "list sandboxes with glovebox ps")
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
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the run ends")
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

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/screen"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) logsCommand() *cobra.Command {
	var follow, details bool
	cmd := &cobra.Command{
		Use:   "logs RUN | SANDBOX",
		Short: "Show the output of runs",
		Long: `Show the output of a run, or of every run of a sandbox in turn. Standard output
goes to standard output, and standard error to standard error. Glovebox keeps the
output for 24 hours after the end of the run.

On a terminal, and with --details, show the program and the verdict of each run,
too, on standard error. A terminal gets control characters as text, such as ^[ for
escape. glovebox runs lists runs.`,
		Example: `  glovebox logs run_7mq2...
  glovebox logs sbx_k3v5... 2>errors.txt
  glovebox logs --follow run_7mq2...`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("logs needs one run or one sandbox"), "list runs with glovebox runs")
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
			if !cmd.Flags().Changed("details") {
				_, out := console.Terminal(p.Out)
				_, err := console.Terminal(p.Err)
				details = out && err
			}
			runs, err := sys.RunsOf(ctx, sandbox.CanonicalID(args[0]))
			if err != nil {
				return err
			}
			for _, r := range runs {
				if err := p.showRun(ctx, sys, r, follow, details); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the run ends")
	cmd.Flags().BoolVar(&details, "details", false, "show the program and the verdict, too; default on a terminal")
	return cmd
}

// showRun shows the output of a run, and its program and verdict if details is
// set.
func (p *program) showRun(ctx context.Context, sys *app.System, r operator.Run, follow, details bool) error {
	if details {
		whole, err := sys.Run(ctx, r.ID)
		if err != nil {
			return err
		}
		p.sayRun(whole)
	}
	write, end := p.recorded()
	if err := sys.Logs(ctx, r.ID, follow, write); err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if !details {
		return nil
	}
	r, err := sys.Run(ctx, r.ID) // it may have ended meanwhile
	if err != nil {
		return err
	}
	p.sayVerdict(r)
	return nil
}

// recorded returns functions that copy a run's output as write does, and end it.
// Control characters do not reach a terminal.
func (p *program) recorded() (write func(sandbox.StreamName, []byte) error, end func() error) {
	out, err := screen.NewText(p.Out), screen.NewText(p.Err)
	_, outSeen := console.Terminal(p.Out)
	_, errSeen := console.Terminal(p.Err)
	write = func(stream sandbox.StreamName, data []byte) error {
		v, seen := out, outSeen
		if stream == sandbox.Stderr {
			v, seen = err, errSeen
		}
		if !seen {
			return p.write(stream, data)
		}
		_, failed := v.Write(data)
		return failed
	}
	return write, func() error { return errors.Join(out.Close(), err.Close()) }
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

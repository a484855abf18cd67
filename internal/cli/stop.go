package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) stopCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:        "stop SANDBOX... | RUN... | --all",
		SuggestFor: []string{"kill", "rm"},
		Short:      "Stop sandboxes, or end runs in them",
		Long: `Stop sandboxes: end their programs and remove their files. Workspaces stay. The
output of the runs is kept for some time; show it with glovebox logs.

With the name of a run, end only that run, such as a service of glovebox run --detach.
Its sandbox stays until its idle limit.`,
		Example: `  glovebox stop sbx_k3v5...
  glovebox stop run_7mq2...
  glovebox stop --all`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if all == (len(args) > 0) {
				return sandbox.WithHint(console.UsageError("stop needs either sandboxes or --all"), "list sandboxes with glovebox ps")
			}
			ctx := cmd.Context()
			sys, err := p.open(ctx, looks)
			if err != nil {
				return err
			}
			defer p.close(ctx, sys, &err)
			if all {
				return p.stopAll(ctx, sys)
			}
			var errs []error
			for _, id := range args {
				if sandbox.ValidRunID(id) {
					errs = append(errs, p.stopRun(ctx, sys, id))
					continue
				}
				errs = append(errs, p.stop(ctx, sys, sandbox.CanonicalID(id)))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop every sandbox of the state directory")
	return cmd
}

func (p *program) stop(ctx context.Context, sys *app.System, id string) error {
	if err := sys.StopSandbox(ctx, id); err != nil {
		return err
	}
	p.Say("stopped %s", id)
	return nil
}

func (p *program) stopRun(ctx context.Context, sys *app.System, id string) error {
	run, err := sys.StopRun(ctx, id)
	if err != nil {
		return err
	}
	p.Say("ended %s in %s: %s", id, run.SandboxID, run.Verdict.Code)
	return nil
}

func (p *program) stopAll(ctx context.Context, sys *app.System) error {
	list, err := sys.Sandboxes(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		p.Say("no sandboxes")
	}
	var errs []error
	for _, s := range list {
		err := p.stop(ctx, sys, s.ID)
		if !errors.Is(err, sandbox.NotFound) { // else it ended by itself
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

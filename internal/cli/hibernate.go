package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) hibernateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hibernate SANDBOX...",
		Short: "Let sandboxes hibernate until their next use",
		Long: `Let sandboxes hibernate: all their programs stand still until the next use of the
sandbox. With the setting sandbox.hibernate: disk, the state of a sandbox is saved on
disk and uses no memory. A sandbox with runs in progress cannot hibernate.

The idle limit does not count for a hibernated sandbox, but its lifetime does.`,
		Example: `  glovebox hibernate sbx_k3v5...`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return sandbox.WithHint(console.UsageError("hibernate needs a sandbox"), "list sandboxes with glovebox ps")
			}
			sys, err := p.open(cmd.Context(), looks)
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			var errs []error
			for _, id := range args {
				errs = append(errs, p.hibernate(cmd.Context(), sys, sandbox.CanonicalID(id)))
			}
			return errors.Join(errs...)
		},
	}
}

func (p *program) hibernate(ctx context.Context, sys *app.System, id string) error {
	sb, err := sys.Operator.Hibernate(ctx, id)
	if err != nil {
		return err
	}
	h := sb.Hibernation
	switch {
	case h.Error != "":
		p.Say("%s hibernates in memory: %s", sb.ID, h.Error)
	case h.Saved.IsZero():
		p.Say("%s hibernates in memory", sb.ID)
	default:
		p.Say("%s hibernates on disk: %s", sb.ID, sandbox.FormatBytes(h.Bytes))
	}
	return nil
}

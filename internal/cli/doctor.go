package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
)

func (p *program) doctorCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether sandboxes work on this machine",
		Long: `Check whether sandboxes work on this machine. For each problem, doctor names the
cause and the command that repairs it. The last check makes a sandbox and runs a
program in it.

Doctor changes nothing without --fix. With --fix it first removes the remains of
sandboxes whose server or command has ended. It keeps sandboxes that a server
takes over when it starts again.

The exit status is 0 if sandboxes work here, and 1 if not.`,
		Example: `  glovebox doctor
  glovebox doctor --fix
  glovebox doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.load()
			if err != nil {
				return err
			}
			opts := app.Options{Config: c, Log: p.logger(c), Version: Version(), TestDrivers: p.testDrivers, TestAuto: p.testAuto}
			var mended []app.Check
			if fix {
				mended = app.Mend(cmd.Context(), opts)
			}
			checks := append(app.Doctor(cmd.Context(), opts), mended...)
			if p.flags.json {
				if err := p.printJSON(checks); err != nil {
					return err
				}
			} else {
				p.printChecks(checks)
			}
			if !app.Works(checks) {
				return &exitError{status: statusFailure}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "remove the remains of sandboxes whose server or command has ended")
	p.addJSON(cmd)
	return cmd
}

func (p *program) printChecks(checks []app.Check) {
	colour := p.painter(p.Out)
	marks := map[app.CheckStatus]string{
		app.CheckOK:      colour(green)("ok     "),
		app.CheckNote:    colour(faint)("note   "),
		app.CheckWarning: colour(yellow)("warning"),
		app.CheckFailed:  colour(red)("FAILED "),
	}
	for _, c := range checks {
		fmt.Fprintf(p.Out, "%s  %s: %s\n", marks[c.Status], c.Name, c.Detail)
		if c.Fix == "" {
			continue
		}
		for line := range strings.SplitSeq(c.Fix, "\n") {
			fmt.Fprintf(p.Out, "           %s\n", line)
		}
	}
	if app.Works(checks) {
		fmt.Fprintln(p.Out, colour(bold)("Sandboxes work here."))
	} else {
		fmt.Fprintln(p.Out, colour(bold)("Sandboxes do not work here yet."))
	}
}

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
		Short: "Find out what works on this machine",
		Long: `Doctor looks at what sandboxes need, says what does not work and why, and names
the command that mends it. It ends by making a sandbox and running a program in
it. Nothing is changed, unless --fix says so: then what servers and commands that
are no more left of sandboxes is removed first. Sandboxes that a server takes over
when it starts again are left to it.

The exit status is 0 if sandboxes work here, 1 if not.`,
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
	cmd.Flags().BoolVar(&fix, "fix", false, "remove what is left of sandboxes that are no more")
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

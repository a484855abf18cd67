package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
)

func (p *program) doctorCommand() *cobra.Command {
	var fix, probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether sandboxes work on this machine",
		Long: `Check whether sandboxes work on this machine. For each problem, doctor names the
cause and the command that repairs it. The last check makes a sandbox and runs a
program in it.

Doctor changes nothing without --fix and --probe. With --fix it first removes the remains of
sandboxes whose server or command has ended. It keeps sandboxes that a server
takes over when it starts again. With the driver kubernetes, it also prints the
objects that the cluster lacks, for kubectl apply. With that driver and --probe, two
Pods try for some seconds whether the cluster enforces NetworkPolicies.

The exit status is 0 if sandboxes work here, and 1 if not.`,
		Example: `  glovebox doctor
  glovebox doctor --fix
  glovebox doctor --driver kubernetes --probe
  glovebox doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, wrong, err := p.loadForDoctor(fix)
			if err != nil {
				return err
			}
			opts := app.Options{Config: c, Log: p.logger(c), Version: Version(), ProbeNetwork: probe, TestDrivers: p.testDrivers, TestAuto: p.testAuto}
			var mended []app.Check
			if fix {
				mended = app.Mend(cmd.Context(), opts)
			}
			configuration := wrong
			if wrong.Name == "" {
				if configuration, err = p.checkConfiguration(c); err != nil {
					return err
				}
			}
			checks := slices.Concat([]app.Check{configuration}, app.Doctor(cmd.Context(), opts), mended)
			if p.flags.json {
				if err := p.PrintJSON(checks); err != nil {
					return err
				}
			} else {
				p.printChecks(checks)
				if fix {
					p.printManifests(checks)
				}
			}
			if !app.Works(checks) {
				return &console.ExitError{Status: console.StatusFailure}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "remove the remains of sandboxes whose server or command has ended")
	cmd.Flags().BoolVar(&probe, "probe", false, "start two Pods that try whether the cluster of the driver kubernetes denies their traffic")
	p.addJSON(cmd)
	return cmd
}

// loadForDoctor returns the configuration. If it cannot be read, wrong says so, and
// the machine is checked with the defaults. Not with fix: the file may name another
// state directory, whose remains doctor would not find.
func (p *program) loadForDoctor(fix bool) (c config.Config, wrong app.Check, err error) {
	_, failed := config.Load(p.flags.config, p.Getenv)
	if failed == nil || fix {
		c, err = p.load()
		return c, app.Check{}, err
	}
	wrong = app.Check{
		Name: "configuration", Status: app.CheckFailed, Detail: failed.Error(),
		Fix: "repair it; the other checks are those of the defaults",
	}
	if c, err = config.Load(os.DevNull, p.Getenv); err != nil { // the environment is wrong
		c = config.Default(p.Getenv)
	}
	c, err = p.override(c)
	return c, wrong, err
}

// checkConfiguration names the configuration file in force.
func (p *program) checkConfiguration(c config.Config) (app.Check, error) {
	check := app.Check{Name: "configuration", Status: app.CheckOK, Detail: "none (defaults)"}
	settings, file, err := config.Effective(p.flags.config, p.Getenv, c)
	if err != nil {
		return check, err
	}
	from := map[string]int{}
	for _, s := range settings {
		from[s.Source]++
	}
	if file != "" {
		check.Detail = fmt.Sprintf("%s (%s)", file, settingCount(from[config.FromFile]))
	}
	if n := from[config.FromEnvironment] + from[config.FromFlag]; n > 0 {
		check.Detail += fmt.Sprintf("; %s from flags and the environment", settingCount(n))
	}
	return check, nil
}

func settingCount(n int) string {
	if n == 1 {
		return "1 setting"
	}
	return fmt.Sprintf("%d settings", n)
}

func (p *program) printChecks(checks []app.Check) {
	colour := p.Painter(p.Out)
	marks := map[app.CheckStatus]string{
		app.CheckOK:      colour(console.Green)("ok     "),
		app.CheckNote:    colour(console.Faint)("note   "),
		app.CheckWarning: colour(console.Yellow)("warning"),
		app.CheckFailed:  colour(console.Red)("FAILED "),
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
		fmt.Fprintln(p.Out, colour(console.Bold)("Sandboxes work here."))
	} else {
		fmt.Fprintln(p.Out, colour(console.Bold)("Sandboxes do not work here yet."))
	}
}

// printManifests prints the objects that a cluster lacks, for its administrator: the
// server seldom may make them.
func (p *program) printManifests(checks []app.Check) {
	for _, c := range checks {
		if c.Manifest != "" {
			fmt.Fprintf(p.Out, "---\n# %s: apply this to the cluster with kubectl apply -f FILE\n%s", c.Name, c.Manifest)
		}
	}
}

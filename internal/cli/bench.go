package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/bench"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) benchCommand() *cobra.Command {
	o := bench.Options{Rounds: 20, Callers: []int{8, 50, 100}, Idle: 5, Plots: true, Image: "python:3.12-slim-bookworm"}
	var out, picture string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how long running a line of code takes on this machine",
		Long: `Measure the time from a call to its complete result on this machine:
  - of Python without a sandbox;
  - of docker run and docker exec, if Docker has the image (nothing is pulled);
  - of Glovebox with a new sandbox, a sandbox of the pool and a running sandbox,
    in this process and by MCP over HTTP;
  - of Glovebox with many callers at once.

Bench also measures the memory of idle sandboxes. Some figures have a goal for
two cores; the report then shows the goal and whether it was reached.

The calls alternate, so other load on the machine affects all of them equally.
Compare figures of one report only, on a machine without other work.

Bench uses a temporary state directory and removes it.`,
		Example: `  glovebox bench
  glovebox bench --rounds 100 --sustain 5m --out bench.json --svg bench.svg
  glovebox bench --callers 8 --json
  DOCKER_HOST=unix:///run/other.sock glovebox bench --docker-image debian-python`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rounds < 1 || o.Sustain < 0 {
				return console.UsageError("--rounds must be 1 or more, and --sustain must not be negative")
			}
			for _, n := range o.Callers {
				if n < 1 || n > 1000 {
					return console.UsageError("--callers: %d is not a number of callers from 1 to 1000", n)
				}
			}
			report, err := p.measure(cmd.Context(), o)
			if err != nil {
				return err
			}
			if out != "" {
				print := func(w io.Writer) error { return (&program{Streams: Streams{Out: w}}).PrintJSON(report) }
				if err := writeTo("--out", out, print); err != nil {
					return err
				}
			}
			if picture != "" {
				if err := writeTo("--svg", picture, func(w io.Writer) error { return bench.SVG(w, report) }); err != nil {
					return err
				}
			}
			if p.flags.json {
				return p.PrintJSON(report)
			}
			return p.printReport(report)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of measurements of each single call")
	f.IntSliceVar(&o.Callers, "callers", o.Callers, "`numbers` of simultaneous callers")
	f.DurationVar(&o.Sustain, "sustain", 0, "`time` for which eight callers call without a pause, such as 5m")
	f.StringVar(&o.Image, "docker-image", o.Image, "`image` for the measurements of Docker")
	f.IntVar(&o.Idle, "idle", o.Idle, "`number` of idle sandboxes for the measurement of memory; 0 is none")
	f.BoolVar(&o.Plots, "plots", o.Plots, "measure plots too, if this machine has pandas and matplotlib")
	f.StringVar(&out, "out", "", "also write the report to this `file`, as JSON")
	f.StringVar(&picture, "svg", "", "also draw the report to this `file`, as SVG")
	p.addJSON(cmd)
	return cmd
}

// measure runs the benchmark on a new system in a temporary state directory.
func (p *program) measure(ctx context.Context, o bench.Options) (report bench.Report, err error) {
	dir, err := os.MkdirTemp("", "glovebox-bench-")
	if err != nil {
		return report, sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	adjust := p.flags.adjust
	p.flags.adjust = func(c *config.Config) error {
		if adjust != nil {
			if err := adjust(c); err != nil {
				return err
			}
		}
		c.StateDir = filepath.Join(dir, "state")
		c.Sandbox.Count = 1200
		c.Server.Listen, c.Server.RateLimit = "127.0.0.1:0", 1e6
		return nil
	}
	open := func(pool bool) (*app.System, error) {
		return p.open(ctx, func(o *app.Options) { o.Pool = pool })
	}
	cold, err := open(false)
	if err != nil {
		return report, err
	}
	defer p.close(ctx, cold, &err)
	p.sayFallback(cold)
	warm, err := open(true)
	if err != nil {
		return report, err
	}
	defer p.close(ctx, warm, &err)
	server, err := serveBench(ctx, warm)
	if err != nil {
		return report, err
	}
	defer closeBench(server, &err)
	o.Cold, o.Warm, o.Ready, o.Serve = cold.Engine, warm.Engine, warm.WaitWarm, server.caller
	o.Version = Version()
	o.Say = func(format string, args ...any) { p.Say("measuring "+format, args...) }
	return bench.Run(ctx, o)
}

// writeTo creates the file that a flag names, and calls write to fill it.
func writeTo(flag, path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: %w", flag, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

func (p *program) printReport(r bench.Report) error {
	p.Say("%s; version %s", r.Machine, r.Version)
	names, rows := r.Table()
	if err := p.PrintTable(names, rows); err != nil {
		return err
	}
	for _, n := range r.Notes {
		if _, err := io.WriteString(p.Err, n+"\n"); err != nil {
			return err
		}
	}
	return nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/bench"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) benchCommand() *cobra.Command {
	o := bench.Options{Rounds: 30, Callers: []int{8, 50, 100}, Image: "python:3.12-slim-bookworm"}
	var out string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what running a line of code costs here",
		Long: `Bench measures, on this machine and side by side, the time from a call to its
complete result: of Python alone, of docker run and docker exec where Docker has
the image already (nothing is pulled), and of Glovebox with a sandbox made on
demand, with one of the pool, and in one that runs; then with many callers at
once. Calls are made in turn, so that what else the machine does meets all alike:
compare figures of one run only, and on a machine with nothing else to do.

It uses a state directory of its own, and leaves nothing behind.`,
		Example: `  glovebox bench
  glovebox bench --rounds 100 --sustain 5m --out bench.json
  glovebox bench --callers 8 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rounds < 1 || o.Sustain < 0 {
				return usageError("--rounds is 1 or more, and --sustain a time")
			}
			for _, n := range o.Callers {
				if n < 1 || n > 1000 {
					return usageError("--callers: %d is not a number of callers from 1 to 1000", n)
				}
			}
			report, err := p.measure(cmd.Context(), o)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeReport(out, report); err != nil {
					return err
				}
			}
			if p.flags.json {
				return p.printJSON(report)
			}
			return p.printReport(report)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each single call is measured")
	f.IntSliceVar(&o.Callers, "callers", o.Callers, "how many callers at once")
	f.DurationVar(&o.Sustain, "sustain", 0, "how long eight callers go on without a pause")
	f.StringVar(&o.Image, "docker-image", o.Image, "what Docker is measured with")
	f.StringVar(&out, "out", "", "write the report to this `file` too, as JSON")
	p.addJSON(cmd)
	return cmd
}

// measure opens what is measured, in a state directory of its own.
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
	warm, err := open(true)
	if err != nil {
		return report, err
	}
	defer p.close(ctx, warm, &err)
	o.Cold, o.Warm, o.Ready = cold.Engine, warm.Engine, warm.WaitWarm
	o.Say = func(format string, args ...any) { p.say("measuring "+format, args...) }
	return bench.Run(ctx, o)
}

func writeReport(path string, r bench.Report) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "--out: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return (&program{Streams: Streams{Out: f}}).printJSON(r)
}

func (p *program) printReport(r bench.Report) error {
	p.say("%s/%s, %d CPUs, load %s when it began; version %s", r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Load, Version())
	most := 0.0
	for _, f := range r.Figures {
		most = max(most, f.P50)
	}
	var rows [][]string
	for _, f := range r.Figures {
		rest := ""
		switch {
		case f.PerSecond > 0:
			rest = fmt.Sprintf("%.1f a second", f.PerSecond)
		case f.Total > 0:
			rest = fmt.Sprintf("all in %.1f s", f.Total/1000)
		}
		if f.Failed > 0 {
			rest += fmt.Sprintf(", %d failed", f.Failed)
		}
		rows = append(rows, []string{f.Name, fmt.Sprint(f.N), fmt.Sprintf("%.1f", f.P50), fmt.Sprintf("%.1f", f.P99), bar(f.P50, most), strings.TrimPrefix(rest, ", ")})
	}
	if err := p.printTable([]string{"WHAT", "N", "P50 MS", "P99 MS", "", ""}, rows); err != nil {
		return err
	}
	for _, n := range r.Notes {
		if _, err := io.WriteString(p.Err, n+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// bar draws a figure beside the largest.
func bar(value, most float64) string {
	const width = 24
	if most <= 0 {
		return ""
	}
	eighths := int(value/most*width*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if part := eighths % 8; part > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[part])
	} else if eighths == 0 {
		text = "▏"
	}
	return text
}

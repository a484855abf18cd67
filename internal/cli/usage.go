package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// usualUsageDays is how many days before today are shown by default.
const usualUsageDays = 30

func (p *program) usageCommand() *cobra.Command {
	var principal, since, until, by string
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what principals used",
		Long: `Show the CPU time, memory, time, traffic and storage that the sandboxes and
workspaces of each principal used, for each day of UTC. Memory is the limit of a
sandbox multiplied by its time, and storage the size of a workspace multiplied by its
time. Sums by hour, workspace and label are kept for 35 days, those by day for 400.
What a live sandbox used appears within a minute, and a run when it has ended.

--by sandbox shows each sandbox of the last 24 hours. The setting usage.label names a
label of sandboxes for --by label.`,
		Example: `  glovebox usage
  glovebox usage --by principal --since 2026-11-01 --until 2026-12-01
  glovebox usage --principal alice --by day,workspace
  glovebox usage --csv > usage.csv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := usage.Query{From: time.Now().UTC().Truncate(usage.Day).AddDate(0, 0, -usualUsageDays)}
			var err error
			if since != "" {
				if q.From, err = usage.ParseTime(since); err != nil {
					return console.UsageError("--since: %w", err)
				}
			}
			if until != "" {
				if q.To, err = usage.ParseTime(until); err != nil {
					return console.UsageError("--until: %w", err)
				}
			}
			if q.By, err = usage.ParseColumns(by); err != nil {
				return console.UsageError("--%w", err)
			}
			if asCSV && p.flags.json {
				return console.UsageError("--csv and --json exclude each other")
			}
			if principal != "" {
				q.Principals = []sandbox.Principal{sandbox.Principal(principal), sandbox.TokenPrincipal(principal)}
			}
			var rows []usage.Row
			err = p.withAccounts(cmd, func(a *app.Accounts) (err error) {
				rows, err = a.Usage(cmd.Context(), q)
				return err
			})
			switch {
			case err != nil:
				return err
			case p.flags.json:
				if rows == nil {
					rows = []usage.Row{}
				}
				return p.PrintJSON(rows)
			case asCSV:
				return usage.WriteCSV(p.Out, rows)
			case len(rows) == 0:
				p.Say("nothing was used")
				return nil
			}
			return p.PrintTable(usageTable(q, rows))
		},
	}
	f := cmd.Flags()
	f.StringVar(&principal, "principal", "", "only this `principal`, or the token of this name")
	f.StringVar(&since, "since", "", "only from this `time` on, such as 2026-11-01; default 30 days ago")
	f.StringVar(&until, "until", "", "only before this `time`")
	f.StringVar(&by, "by", "day,principal", "`columns` to sum by: hour or day, principal, workspace, label; or sandbox")
	f.BoolVar(&asCSV, "csv", false, "print CSV")
	p.addJSON(cmd)
	return cmd
}

// usageTable returns the header and the rows of a table.
func usageTable(q usage.Query, rows []usage.Row) (header []string, table [][]string) {
	if q.Has(usage.BySandbox) {
		q.By = []usage.Column{usage.ByHour, usage.BySandbox, usage.ByPrincipal, usage.ByWorkspace, usage.ByLabel}
	}
	for _, c := range q.By {
		name := strings.ToUpper(string(c))
		if c == usage.ByHour {
			name = "TIME"
		}
		header = append(header, name)
	}
	header = append(header, "SANDBOXES", "TIME", "CPU", "MEMORY", "RUNS", "SENT", "RECEIVED", "STORAGE")
	if q.Has(usage.ByHour) {
		header[slices.Index(q.By, usage.ByHour)] = "START"
	}
	for _, r := range rows {
		var row []string
		for _, c := range q.By {
			row = append(row, strings.ReplaceAll(printable(usageColumn(r, c)), "\n", " "))
		}
		row = append(row,
			fmt.Sprint(r.Sandboxes), duration(r.SandboxMillis), duration(r.CPUMillis), gibHours(r.MemoryKiBSeconds),
			fmt.Sprint(r.Runs), sandbox.FormatBytes(r.SentBytes), sandbox.FormatBytes(r.ReceivedBytes), gibHours(r.StorageKiBSeconds))
		table = append(table, row)
	}
	return header, table
}

func usageColumn(r usage.Row, c usage.Column) string {
	text := ""
	switch c {
	case usage.ByHour:
		text = r.Start.Format("2006-01-02T15:04Z")
	case usage.ByDay:
		text = r.Start.Format(time.DateOnly)
	case usage.ByPrincipal:
		text = string(r.Principal)
	case usage.ByWorkspace:
		text = r.Workspace
	case usage.ByLabel:
		text = r.Label
	case usage.BySandbox:
		text = r.SandboxID
	}
	if text == "" {
		return "-"
	}
	return text
}

// duration shows milliseconds in a unit that fits.
func duration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms > int64(time.Duration(1<<63-1)/time.Millisecond):
		return fmt.Sprintf("%dh", ms/3600_000)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// gibHours shows KiB multiplied by seconds.
func gibHours(kibSeconds int64) string {
	return fmt.Sprintf("%.3f GiB·h", float64(kibSeconds)/(1<<20)/3600)
}

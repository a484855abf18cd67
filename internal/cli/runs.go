package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// usualHistory is how many runs are listed by default.
const usualHistory = 20

// maxFirstLine bounds the displayed line of a program, in characters.
const maxFirstLine = 50

func (p *program) runsCommand() *cobra.Command {
	var q operator.HistoryQuery
	verdict, since, until := "", "", ""
	cmd := &cobra.Command{
		Use:        "runs",
		SuggestFor: []string{"history"},
		Short:      "List runs",
		Long: `List the latest runs of all sandboxes and principals of the state directory, the
newest first. The list has runs for 24 hours after their end, or as long as the
setting run.keep says, also if their sandbox has stopped. glovebox logs RUN shows the
output of one.

The principal of a run is the client that asked for it: local for this command
line and for MCP over stdio, token:NAME for a client of a server.`,
		Example: `  glovebox runs
  glovebox runs --principal alice --verdict failed
  glovebox runs --since 2026-11-26T14:00:00Z --label billing
  glovebox runs --sandbox sbx_k3v5... --limit 0
  glovebox runs --json | jq -r '.[].program'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Limit < 0 {
				return console.UsageError("--limit: %d is negative; 0 lists all runs", q.Limit)
			}
			q.SandboxID = sandbox.CanonicalID(q.SandboxID)
			q.Verdict = sandbox.VerdictCode(verdict)
			if verdict != "" && !slices.Contains(sandbox.VerdictCodes(), q.Verdict) {
				return console.UsageError("--verdict: %q is not a verdict; the verdicts are %s", verdict, verdicts())
			}
			if q.Since, err = timeFlag("--since", since); err != nil {
				return err
			}
			if q.Until, err = timeFlag("--until", until); err != nil {
				return err
			}
			sys, err := p.open(cmd.Context(), looks)
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			list, err := sys.History(cmd.Context(), q)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.PrintJSON(list)
			}
			if len(list) == 0 {
				p.Say("no runs")
				return nil
			}
			now := time.Now()
			rows := make([][]string, 0, len(list))
			for _, r := range list {
				rows = append(rows, runRow(r, now))
			}
			return p.PrintTable([]string{"RUN", "AGE", "PRINCIPAL", "LANGUAGE", "VERDICT", "TIME", "PROGRAM"}, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Principal, "principal", "", "only runs of this `principal`, or of the token of this name")
	f.StringVar(&q.SandboxID, "sandbox", "", "only runs in the sandbox with this `ID`")
	f.StringVar(&verdict, "verdict", "", "only runs with this `verdict`: "+verdicts())
	f.StringVar(&q.Label, "label", "", "only runs in sandboxes with this `value` of the label that usage.label names")
	f.StringVar(&since, "since", "", "only runs that started at this `time` or later, such as 2026-11-26 or 2026-11-26T14:00:00Z")
	f.StringVar(&until, "until", "", "only runs that started before this `time`")
	f.IntVarP(&q.Limit, "limit", "n", usualHistory, "how many runs to list; 0 lists all")
	p.addJSON(cmd)
	return cmd
}

// timeFlag parses the time of a flag. "" is zero.
func timeFlag(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := usage.ParseTime(text)
	if err != nil {
		return t, console.UsageError("%s: %w", flag, err)
	}
	return t, nil
}

func verdicts() string {
	var names []string
	for _, c := range sandbox.VerdictCodes() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// runRow returns the columns of a run.
func runRow(r operator.Run, now time.Time) []string {
	verdict, took, language := string(r.Status), now.Sub(r.Started), r.Language
	if r.Status == sandbox.RunFinished {
		verdict, took = string(r.Verdict.Code), r.Ended.Sub(r.Started)
	}
	if language == "" {
		language = "-"
	}
	return []string{
		r.ID, console.Approximately(now.Sub(r.Started)), string(r.Principal), language, verdict,
		took.Round(time.Millisecond).String(), firstLine(r.Program, r.ProgramBytes),
	}
}

// firstLine returns the first line of a program that has text, as a column. It
// replaces control characters, which could command the terminal.
func firstLine(program string, size int64) string {
	line, more, _ := strings.Cut(strings.TrimLeft(program, "\n\r"), "\n")
	text := []rune(strings.TrimSpace(printable(line)))
	if len(text) > maxFirstLine {
		return string(text[:maxFirstLine-1]) + "…"
	}
	if strings.TrimSpace(more) != "" || size > int64(len(program)) {
		return string(text) + " …"
	}
	return string(text)
}

// printable replaces control and other invisible characters, except newlines, by
// spaces.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// sayRun prints what a run was and how it ended to standard error.
func (p *program) sayRun(r operator.Run) {
	dim := p.Painter(p.Err)(console.Faint)
	language := r.Language
	if language == "" {
		language = "command"
	}
	p.Say("%s", dim(fmt.Sprintf("%s  %s  %s  in %s  %s", r.ID, r.Started.Local().Format(time.DateTime), r.Principal, r.SandboxID, language)))
	for line := range strings.Lines(printable(r.Program)) {
		p.Say("%s", dim("  | "+strings.TrimRight(line, "\n")))
	}
	if more := r.ProgramBytes - int64(len(r.Program)); more > 0 {
		p.Say("%s", dim(fmt.Sprintf("  | … %d more bytes, which are not kept", more)))
	}
}

// sayVerdict prints how a run ended to standard error.
func (p *program) sayVerdict(r operator.Run) {
	dim := p.Painter(p.Err)(console.Faint)
	if r.Status != sandbox.RunFinished {
		p.Say("%s", dim("it still runs"))
		return
	}
	text := string(r.Verdict.Code)
	if r.ExitCode != nil {
		text += fmt.Sprintf(", exit status %d", *r.ExitCode)
	}
	text += fmt.Sprintf(", after %v", r.Ended.Sub(r.Started).Round(time.Millisecond))
	if r.Verdict.Cause != "" {
		text += ": " + printable(r.Verdict.Cause)
	}
	p.Say("%s", dim(text))
}

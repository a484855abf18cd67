package cli

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
)

// An auditQuery selects records of the audit log.
type auditQuery struct {
	principal, action, sandbox string
	since                      time.Duration
	limit                      int
}

// matches reports whether a record is selected.
func (q *auditQuery) matches(r audit.Record, now time.Time) bool {
	principal := string(r.Principal)
	return (q.principal == "" || principal == q.principal || principal == "token:"+q.principal) &&
		(q.action == "" || string(r.Action) == q.action || strings.HasPrefix(string(r.Action), q.action+".")) &&
		(q.sandbox == "" || r.Sandbox == q.sandbox) &&
		(q.since == 0 || now.Sub(r.Time) <= q.since)
}

func (p *program) auditCommand() *cobra.Command {
	var q auditQuery
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show and verify the record of actions",
		Long: `Show the latest records of the audit log: who did what, when, from where, and with
which outcome. The configuration switches the log on: see audit in glovebox help
config. A record has hashes of programs and files, but no code, output or secrets.`,
		Example: `  glovebox audit
  glovebox audit --principal alice --action run
  glovebox audit --since 24h --limit 0 --json
  glovebox audit verify`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if q.limit < 0 {
				return console.UsageError("--limit: %d is negative; 0 shows all records", q.limit)
			}
			c, err := p.load()
			if err != nil {
				return err
			}
			now := time.Now()
			list := []audit.Record{}
			err = audit.Read(app.AuditDir(c), func(r audit.Record) bool {
				if q.matches(r, now) {
					list = append(list, r)
					if q.limit > 0 && len(list) >= 2*q.limit {
						list = slices.Delete(list, 0, len(list)-q.limit)
					}
				}
				return true
			})
			if err != nil {
				return err
			}
			if q.limit > 0 && len(list) > q.limit {
				list = list[len(list)-q.limit:]
			}
			if p.flags.json {
				return p.PrintJSON(list)
			}
			if len(list) == 0 {
				p.Say("no records")
				return nil
			}
			rows := make([][]string, 0, len(list))
			for _, r := range list {
				rows = append(rows, auditRow(r))
			}
			return p.PrintTable([]string{"TIME", "PRINCIPAL", "FROM", "ACTION", "OBJECT", "OUTCOME", "DETAIL"}, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.principal, "principal", "", "only records of this `principal`, or of the token of this name")
	f.StringVar(&q.action, "action", "", "only records of this `action`, such as run.start, or of a group, such as run")
	f.StringVar(&q.sandbox, "sandbox", "", "only records about the sandbox with this `ID`")
	f.DurationVar(&q.since, "since", 0, "only records of this `time` before now, such as 24h")
	f.IntVarP(&q.limit, "limit", "n", usualHistory, "how many records to show; 0 shows all")
	p.addJSON(cmd)
	cmd.AddCommand(p.auditVerifyCommand())
	return cmd
}

// auditRow returns the row of a record. Its texts may come from a client.
func auditRow(r audit.Record) []string {
	object := r.Run
	if object == "" {
		object = r.Sandbox
	}
	var detail []string
	for _, k := range slices.Sorted(maps.Keys(r.Detail)) {
		if k != "sha256" {
			detail = append(detail, k+"="+r.Detail[k])
		}
	}
	row := []string{r.Time.Local().Format(time.DateTime), string(r.Principal), r.From, string(r.Action), object, r.Outcome, strings.Join(detail, " ")}
	for i := range row {
		row[i] = strings.ReplaceAll(printable(row[i]), "\n", " ")
	}
	return row
}

func (p *program) auditVerifyCommand() *cobra.Command {
	var mark string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no record was changed or removed",
		Long: `Read the whole audit log, and check that no line was changed, removed or inserted.
On success, the last line of the output is a mark of the last record. Keep marks in
another place: a program that can write the log could also write it anew, and only
a mark, or the copy in syslog, shows that.`,
		Example: `  glovebox audit verify
  glovebox audit verify --mark 120:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := p.load()
			if err != nil {
				return err
			}
			var marks []audit.Mark
			if mark != "" {
				m, err := audit.ParseMark(mark)
				if err != nil {
					return console.UsageError("--mark: %w", err)
				}
				marks = append(marks, m)
			}
			report, err := audit.Verify(app.AuditDir(c), marks...)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.PrintJSON(map[string]any{"records": report.Records, "first": report.First, "files": report.Files, "mark": report.Last.String()})
			}
			p.Say("%d records in %d files are complete, from number %d", report.Records, report.Files, report.First)
			return p.Print("%s\n", report.Last)
		},
	}
	cmd.Flags().StringVar(&mark, "mark", "", "check that the log still has the record of this `mark`")
	p.addJSON(cmd)
	return cmd
}

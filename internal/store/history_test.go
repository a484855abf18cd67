package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestHistory(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	begun := time.UnixMicro(1_000_000).UTC()
	add := func(id, box string, p sandbox.Principal, after time.Duration, code sandbox.VerdictCode) {
		t.Helper()
		r := Run{Principal: p, Language: "python", Program: "print(" + id + ")", ProgramBytes: 9000}
		r.ID, r.SandboxID, r.Started = id, box, begun.Add(after)
		if err := s.InsertRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if code == "" {
			return
		}
		r.Ended, r.Verdict.Code = r.Started.Add(time.Second), code
		if ok, err := s.FinishRun(t.Context(), r); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	for _, id := range []string{"sbx_1", "sbx_2"} {
		box := Sandbox{Principal: sandbox.Local}
		box.ID, box.State = id, sandbox.Running
		if err := s.InsertSandbox(t.Context(), box); err != nil {
			t.Fatal(err)
		}
	}
	add("1", "sbx_1", "local", 0, sandbox.OK)
	add("2", "sbx_2", "token:a", time.Second, sandbox.Failed)
	add("3", "sbx_2", "token:b", time.Second, "")
	add("4", "sbx_1", "token:a", 3*time.Second, sandbox.OK)
	if _, err := s.write.ExecContext(t.Context(), `INSERT INTO meters (sandbox_id, principal, workspace, label, memory_kib, started_at, counted_at)
		VALUES ('sbx_2', 'local', '', 'billing', 0, 0, 0) ON CONFLICT DO UPDATE SET label = excluded.label`); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f    HistoryFilter
		want []string
	}{
		"All":        {HistoryFilter{}, []string{"4", "3", "2", "1"}},
		"Limit":      {HistoryFilter{Limit: 2}, []string{"4", "3"}},
		"Principals": {HistoryFilter{Principals: []sandbox.Principal{"token:a", "token:b", "a"}}, []string{"4", "3", "2"}},
		"Sandbox":    {HistoryFilter{SandboxID: "sbx_2"}, []string{"3", "2"}},
		"Verdict":    {HistoryFilter{Verdict: sandbox.OK, Principals: []sandbox.Principal{"token:a"}}, []string{"4"}},
		"Label":      {HistoryFilter{Label: "billing"}, []string{"3", "2"}},
		"From":       {HistoryFilter{From: begun.Add(time.Second)}, []string{"4", "3", "2"}},
		"To":         {HistoryFilter{To: begun.Add(time.Second)}, []string{"1"}},
		"None":       {HistoryFilter{SandboxID: "sbx_3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := s.History(t.Context(), c.f)
			var got []string
			for _, r := range list {
				got = append(got, r.ID)
				if r.Language != "python" || r.Program != "print("+r.ID+")" || r.ProgramBytes != 9000 {
					t.Errorf("the record is %+v", r)
				}
			}
			if d := cmp.Diff(c.want, got); err != nil || d != "" {
				t.Errorf("%v, -want +got\n%s", err, d)
			}
		})
	}
}

// TestLastRuns checks the order, the owner and the bound of the list, and that its cost
// depends on the runs of its principal alone.
func TestLastRuns(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	for i, p := range []sandbox.Principal{"token:a", "token:b"} {
		box := Sandbox{Principal: p}
		box.ID, box.State = fmt.Sprint("sbx_", i), sandbox.Running
		if err := s.InsertSandbox(t.Context(), box); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			r := Run{Principal: p, Program: strings.Repeat("é", 2000)}
			r.ID, r.SandboxID, r.Started = fmt.Sprint(p, n), box.ID, time.UnixMicro(int64(n)).UTC()
			if err := s.InsertRun(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := s.LastRuns(t.Context(), "token:a", 2)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list {
		got = append(got, fmt.Sprint(r.ID, " ", len([]rune(r.Program))))
	}
	if d := cmp.Diff([]string{"token:a2 1000", "token:a1 1000"}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	var plan string
	err = collect(t.Context(), s.read, "EXPLAIN QUERY PLAN "+lastRunsSQL, []any{"token:a", 2}, func(scan scanFunc) error {
		var id, parent, unused int
		var detail string
		err := scan(&id, &parent, &unused, &detail)
		plan += detail + "\n"
		return err
	})
	if err != nil || strings.Contains(plan, "SCAN runs") || strings.Contains(plan, "runs_started") || !strings.Contains(plan, "runs_by_sandbox") {
		t.Errorf("%v; the query looks at runs of other principals:\n%s", err, plan)
	}
}

// TestHistoryMigration opens a database of the version before, whose runs have no
// programs.
func TestHistoryMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0007_history",
		`INSERT INTO sandboxes (id, principal, owner, detached, driver, state, name, image, network, has_env, limits, created_at, used_at)
			VALUES ('sbx', 'local', 'o', 0, 'gvisor', 'stopped', '', 'host', 'none', 0, '{}', 1, 1)`,
		`INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin, ended_at, verdict)
			VALUES ('run', 'sbx', 'local', 1, 1, 0, 0, 2, 'ok')`)
	list, err := mustOpen(t, dir).History(t.Context(), HistoryFilter{})
	if err != nil || len(list) != 1 || list[0].ID != "run" || list[0].Program != "" || list[0].Verdict.Code != sandbox.OK {
		t.Errorf("the history is %+v, %v", list, err)
	}
}

// TestHistoryIsBounded lists a run with a long program. The logs that are kept count
// the program, because it takes room on the disk as they do.
func TestHistoryIsBounded(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	box := Sandbox{Principal: sandbox.Local}
	box.ID, box.State = "sbx", sandbox.Running
	if err := s.InsertSandbox(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	program := strings.Repeat("é", 4000)
	r := Run{Principal: "local", Program: program, ProgramBytes: 8000}
	r.ID, r.SandboxID, r.Started = "run", "sbx", time.UnixMicro(1)
	if err := s.InsertRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Ended, r.Verdict.Code, r.KeptBytes = time.UnixMicro(2), sandbox.OK, 100
	if _, err := s.FinishRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if list, err := s.History(t.Context(), HistoryFilter{}); err != nil || len(list) != 1 || list[0].Program != program[:2000] || list[0].ProgramBytes != 8000 {
		t.Errorf("the history is %+v, %v", list, err)
	}
	if list, err := s.RunsEndedBefore(t.Context(), time.UnixMicro(3)); err != nil || len(list) != 1 || list[0].Program != "" {
		t.Errorf("the ended runs are %+v, %v", list, err)
	}
	if list, err := s.KeptLogs(t.Context()); err != nil || len(list) != 1 || list[0].Bytes != 8100 {
		t.Errorf("the kept logs are %+v, %v", list, err)
	}
	if got, err := s.Run(t.Context(), "run"); err != nil || got.Program != program {
		t.Errorf("the run has a program of %d bytes, %v", len(got.Program), err)
	}
}

// TestHistoryUsesIndexes: no search reads all runs.
func TestHistoryUsesIndexes(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	for where, index := range map[string]string{
		"principal IN ('a')":                     "runs_by_principal",
		"verdict = 'failed' AND ended_at != 0":   "runs_by_verdict",
		"started_at >= 5 AND started_at < 9":     "runs_started",
		"principal IN ('a') AND started_at >= 5": "runs_by_principal",
		"sandbox_id IN (SELECT sandbox_id FROM meters WHERE label = 'x' AND label != '')": "meters_label",
	} {
		var plan strings.Builder
		err := collect(t.Context(), s.read, "EXPLAIN QUERY PLAN "+historySQL+" WHERE "+where+" ORDER BY started_at DESC, id DESC LIMIT 10", nil, func(scan scanFunc) error {
			var a, b, c int
			var text string
			err := scan(&a, &b, &c, &text)
			plan.WriteString(text + "\n")
			return err
		})
		if err != nil || !strings.Contains(plan.String(), index) {
			t.Errorf("%s: %v\n%s", where, err, &plan)
		}
	}
}

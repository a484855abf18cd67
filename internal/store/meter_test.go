package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// TestUsageMigration opens a database of before usage was counted, with a live and an
// ended sandbox, a run in progress and a workspace.
func TestUsageMigration(t *testing.T) {
	const box = `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at, ended_at, workspace)`
	dir := t.TempDir()
	makeBefore(t, dir, "0012_usage",
		box+` VALUES ('live', 'alice', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{"memory_bytes": 1048576}', 1, 3600000000, 0, 'w')`,
		box+` VALUES ('ended', 'alice', 'o', 1, 'd', 'r', 'stopped', '', 'host', 'none', 0, '{}', 1, 1, 2, '')`,
		`INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin) VALUES ('run', 'live', 'alice', 3600000000, 1, 0, 0)`,
		`INSERT INTO workspaces (id, handle, principal, name, created_at, used_at, bytes) VALUES ('i', 'h', 'alice', 'w', 1, 3600000000, 2048)`)
	now := time.Unix(7200, 0).UTC()
	s, err := Open(t.Context(), Options{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := Run{Principal: "alice"}
	r.ID, r.SandboxID, r.Started, r.Ended, r.Usage.CPUMillis = "run", "live", time.Unix(3600, 0), time.Unix(3610, 0), 40
	if ok, err := s.FinishRun(t.Context(), r); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, id := range []string{"live", "ended"} {
		if err := s.Meter(t.Context(), []Reading{{SandboxID: id, Until: now, Counters: usage.Counters{BoxCPUMillis: 100}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.MeterWorkspaces(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	got, err := s.Usage(t.Context(), usage.Query{By: []usage.Column{usage.ByPrincipal}, Principals: []sandbox.Principal{"alice"}})
	want := []usage.Row{{Principal: "alice", Amounts: usage.Amounts{
		SandboxMillis: 3600_000, MemoryKiBSeconds: 3600 * 1024, CPUMillis: 40, Runs: 1, RunMillis: 10_000, StorageKiBSeconds: 7200,
	}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// TestBoxCountsMigration opens a database of before the host's count was chosen at the
// start: a sandbox of then counts the CPU time of its runs, and nothing twice.
func TestBoxCountsMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0013_boxcounts",
		`INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
			VALUES ('live', 'alice', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`,
		`INSERT INTO meters (sandbox_id, principal, workspace, label, memory_kib, started_at, counted_at, box_cpu_ms, run_cpu_ms)
			VALUES ('live', 'alice', '', '', 0, 1, 1, 70, 100)`,
		`INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin) VALUES ('run', 'live', 'alice', 1, 1, 0, 0)`)
	s := mustOpen(t, dir)
	if err := s.Meter(t.Context(), []Reading{{SandboxID: "live", Until: time.UnixMicro(1), Counters: usage.Counters{BoxCPUMillis: 500}}}); err != nil {
		t.Fatal(err)
	}
	r := Run{Principal: "alice"}
	r.ID, r.SandboxID, r.Started, r.Ended, r.Usage.CPUMillis = "run", "live", time.UnixMicro(1), time.Unix(1, 0), 30
	if ok, err := s.FinishRun(t.Context(), r); err != nil || !ok {
		t.Fatal(ok, err)
	}
	got, err := s.Usage(t.Context(), usage.Query{})
	want := []usage.Row{{Amounts: usage.Amounts{CPUMillis: 30, Runs: 1, RunMillis: 999}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// meterNow is the time of the scenario of TestMeterKilled.
var meterNow = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// meterScenario does what an engine does with a sandbox from its start to its stop, as
// far as that was not done before.
func meterScenario(ctx context.Context, s *Store) error {
	at := func(minute int) time.Time { return meterNow.Add(time.Duration(minute) * time.Minute) }
	if _, err := s.Sandbox(ctx, "sbx"); errors.Is(err, sandbox.NotFound) {
		box := testSandbox("me")
		box.ID, box.Created, box.Used, box.Workspace = "sbx", at(0), at(0), "w"
		box.Limits.MemoryBytes = 1 << 20
		if err := s.InsertSandbox(ctx, box); err != nil {
			return err
		}
	}
	if _, err := s.StartedSandbox(ctx, "sbx", "ref", nil, at(0), "red", true); err != nil {
		return err
	}
	run := func(id string, from int) (Run, error) {
		r := Run{Principal: sandbox.Local, Timeout: time.Second}
		r.ID, r.SandboxID, r.Started = id, "sbx", at(from)
		if _, err := s.Run(ctx, id); !errors.Is(err, sandbox.NotFound) {
			return r, err
		}
		return r, s.InsertRun(ctx, r)
	}
	r, err := run("run1", 50)
	if err != nil {
		return err
	}
	r.Ended, r.Verdict, r.Usage.CPUMillis = at(70), sandbox.Verdict{Code: sandbox.OK}, 700
	if _, err := s.FinishRun(ctx, r); err != nil {
		return err
	}
	if err := s.Meter(ctx, []Reading{{SandboxID: "sbx", Until: at(80), Counters: usage.Counters{BoxCPUMillis: 900, SentBytes: 5}}}); err != nil {
		return err
	}
	if _, err := run("run2", 90); err != nil {
		return err
	}
	last := Reading{Until: at(100), Counters: usage.Counters{BoxCPUMillis: 1000, SentBytes: 7, ReceivedBytes: 9}}
	_, err = s.EndSandbox(ctx, "sbx", "done", at(100), sandbox.Verdict{Code: sandbox.SandboxLost}, last)
	return err
}

const (
	meterEnv  = "STORE_TEST_METER"      // the directory
	meterKill = "STORE_TEST_METER_KILL" // the number of the step at which the process is killed
)

// meterChild is a process that kills itself at a step of the scenario.
func meterChild(dir string) error {
	s, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(os.Getenv(meterKill))
	if err != nil {
		return err
	}
	s.beforeWrite = func() {
		if left--; left == 0 {
			p, _ := os.FindProcess(os.Getpid())
			_ = p.Kill()
			select {}
		}
	}
	return errors.Join(meterScenario(context.Background(), s), s.Close())
}

// TestMeterKilled kills a process at every write. After another process has repeated
// the rest, the sums are exact.
func TestMeterKilled(t *testing.T) {
	want := []usage.Row{
		{Start: meterNow, Principal: sandbox.Local, Workspace: "w", Label: "red", Amounts: usage.Amounts{
			Sandboxes: 1, SandboxMillis: 3600_000, MemoryKiBSeconds: 3600 * 1024, RunMillis: 600_000,
		}},
		{Start: meterNow.Add(time.Hour), Principal: sandbox.Local, Workspace: "w", Label: "red", Amounts: usage.Amounts{
			SandboxMillis: 2400_000, MemoryKiBSeconds: 2400 * 1024, Runs: 2, RunMillis: 1200_000, ReceivedBytes: 9,
		}},
	}
	// The reading at minute 80 divides 900 ms and 5 bytes over its 80 minutes: 60 of
	// them in the first hour. All later amounts belong to the second hour.
	want[0].CPUMillis, want[0].SentBytes = 675, 3
	want[1].CPUMillis = 1000 - want[0].CPUMillis
	want[1].SentBytes = 7 - want[0].SentBytes
	steps := 0
	for n := 1; ; n++ {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), meterEnv+"="+dir, fmt.Sprintf("%s=%d", meterKill, n))
		out, err := cmd.CombinedOutput()
		killed := err != nil
		if killed && len(out) > 0 {
			t.Fatalf("step %d: %v\n%s", n, err, out)
		}
		s := mustOpen(t, dir)
		if err := meterScenario(t.Context(), s); err != nil {
			t.Fatalf("killed at step %d: %v", n, err)
		}
		got, err := s.Usage(t.Context(), usage.Query{By: []usage.Column{usage.ByHour, usage.ByPrincipal, usage.ByWorkspace, usage.ByLabel}})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("killed at step %d: %v, -want +got\n%s", n, err, diff)
		}
		days, err := s.Usage(t.Context(), usage.Query{By: []usage.Column{usage.ByDay}})
		sum := usage.Row{Start: meterNow.Truncate(usage.Day), Amounts: want[0].Plus(want[1].Amounts)}
		if diff := cmp.Diff([]usage.Row{sum}, days); err != nil || diff != "" {
			t.Fatalf("killed at step %d: days: %v, -want +got\n%s", n, err, diff)
		}
		boxes, err := s.Usage(t.Context(), usage.Query{By: []usage.Column{usage.BySandbox}, Limit: 10})
		if err != nil || len(boxes) != 1 || boxes[0].CPUMillis != 1000 || boxes[0].Runs != 2 || boxes[0].SandboxMillis != sum.SandboxMillis {
			t.Fatalf("killed at step %d: %v, sandboxes %+v", n, err, boxes)
		}
		if !killed {
			break
		}
		steps++
	}
	if steps < 20 {
		t.Errorf("the process was killed at %d steps only", steps)
	}
}

// TestUsageBounds: a principal has few rows in an hour, and old ones are removed.
func TestUsageBounds(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	err := s.meter(ctx, func(m *metering) error {
		for i := range maxHourRows + 5 {
			parts := usage.Divide(meterNow, meterNow, usage.Amounts{Runs: 1})
			if err := m.count(ctx, "alice", "w"+strconv.Itoa(i), "", parts); err != nil {
				return err
			}
		}
		huge := usage.Amounts{CPUMillis: 1<<63 - 1}
		for range 2 {
			if err := m.count(ctx, "bob", "", "", usage.Divide(meterNow, meterNow, huge)); err != nil {
				return err
			}
		}
		return m.count(ctx, "alice", "w0", "", usage.Divide(meterNow, meterNow, usage.Amounts{Runs: 1}))
	})
	if err != nil {
		t.Fatal(err)
	}
	byLabel := usage.Query{By: []usage.Column{usage.ByLabel}, Principals: []sandbox.Principal{"alice"}}
	got, err := s.Usage(ctx, byLabel)
	want := []usage.Row{{Amounts: usage.Amounts{Runs: maxHourRows + 1}}, {Label: usage.Other, Amounts: usage.Amounts{Runs: 5}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	bob, err := s.Usage(ctx, usage.Query{By: []usage.Column{usage.ByDay}, Principals: []sandbox.Principal{"bob"}})
	if err != nil || len(bob) != 1 || bob[0].CPUMillis != 1<<63-1 {
		t.Errorf("an account beyond all bounds: %v, %v", bob, err)
	}
	if err := s.ForgetUsage(ctx, meterNow.Add(time.Hour), meterNow.Truncate(usage.Day)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Usage(ctx, usage.Query{By: []usage.Column{usage.ByHour}}); err != nil || len(got) > 0 {
		t.Errorf("hours after their removal: %v, %v", got, err)
	}
	if got, err := s.Usage(ctx, usage.Query{By: []usage.Column{usage.ByDay}}); err != nil || len(got) != 1 {
		t.Errorf("days: %v, %v", got, err)
	}
}

// TestUsageOfWorkspace: each size of a workspace counts for its time.
func TestUsageOfWorkspace(t *testing.T) {
	ctx, now := t.Context(), meterNow
	s, err := Open(ctx, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := Workspace{ID: "i", Handle: "h", Principal: "alice"}
	w.Name, w.Used = "w", now
	if err := s.UseWorkspace(ctx, w, 1, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	step := func(minutes int, bytes int64) {
		t.Helper()
		now = now.Add(time.Duration(minutes) * time.Minute)
		if err := s.TouchWorkspace(ctx, "i", now, &sandbox.WorkspaceUsage{Bytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	step(10, 1024)    // 10 minutes with nothing
	step(10, 1024)    // no change
	step(10, 10*1024) // 20 minutes with 1 KiB
	now = now.Add(time.Minute)
	for range 2 {
		if err := s.MeterWorkspaces(ctx, now); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Minute)
	if ok, err := s.DeleteWorkspace(ctx, "i", time.Time{}, func() error { return nil }); err != nil || !ok {
		t.Fatal(ok, err)
	}
	got, err := s.Usage(ctx, usage.Query{By: []usage.Column{usage.ByWorkspace}})
	want := []usage.Row{{Workspace: "w", Amounts: usage.Amounts{StorageKiBSeconds: 1200 + 2*600}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(meterEnv); dir != "" {
		if err := meterChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func mustOpen(tb testing.TB, dir string) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), Options{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

func testSandbox(owner string) Sandbox {
	now := time.UnixMicro(time.Now().UnixMicro()).UTC()
	return Sandbox{
		Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Name: "n", State: sandbox.Starting, Driver: "fake", Image: sandbox.ImageHost,
			Network: sandbox.NetworkNone, Limits: sandbox.DefaultLimits(), Created: now, Used: now,
		},
		Principal: sandbox.Local, Owner: owner, Detached: true, HasEnv: true,
	}
}

func addRuns(ctx context.Context, s *Store, sandboxID string, n int) error {
	for range n {
		r := Run{Principal: sandbox.Local, Timeout: time.Second}
		r.ID, r.SandboxID, r.Started = sandbox.NewRunID(), sandboxID, s.Now()
		if err := s.InsertRun(ctx, r); err != nil {
			return err
		}
		r.Ended, r.Verdict = s.Now(), sandbox.Verdict{Code: sandbox.OK}
		if _, err := s.FinishRun(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func TestSandboxRoundTrip(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	want := testSandbox("me")
	if err := s.InsertSandbox(ctx, want); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got, err := s.Sandbox(ctx, want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	}
	check()

	want.State, want.Ref, want.Used = sandbox.Running, "box-1", want.Used.Add(time.Second)
	want.Receipt = sandbox.Receipt{{Name: sandbox.ControlMemory, Asked: "512 MiB", Value: "512 MiB", Mechanism: "m", Enforced: true}}
	if ok, err := s.StartedSandbox(ctx, want.ID, want.Ref, want.Receipt, want.Used, "", false); err != nil || !ok {
		t.Fatalf("StartedSandbox = %v, %v", ok, err)
	}
	if ok, err := s.StartedSandbox(ctx, want.ID, "x", nil, want.Used, "", false); err != nil || ok {
		t.Fatalf("second StartedSandbox = %v, %v", ok, err)
	}
	check()

	want.Used = want.Used.Add(time.Minute)
	for _, at := range []time.Time{want.Used, want.Used.Add(-time.Hour)} { // an older use changes nothing
		if err := s.TouchSandbox(ctx, want.ID, at); err != nil {
			t.Fatal(err)
		}
	}
	want.StopCause = "first"
	for _, cause := range []string{"first", "second"} {
		if err := s.StoppingSandbox(ctx, want.ID, cause); err != nil {
			t.Fatal(err)
		}
	}
	check()

	if ok, err := s.ClaimSandbox(ctx, want.ID, "other", "you"); err != nil || ok {
		t.Fatalf("claim from a stranger = %v, %v", ok, err)
	}
	if ok, err := s.ClaimSandbox(ctx, want.ID, "me", "you"); err != nil || !ok {
		t.Fatalf("claim = %v, %v", ok, err)
	}
	want.Owner = "you"
	check()

	want.State, want.Cause, want.Ended = sandbox.Stopped, "done", want.Used.Add(time.Hour)
	if ok, err := s.EndSandbox(ctx, want.ID, "done", want.Ended, sandbox.Verdict{}, Reading{}); err != nil || !ok {
		t.Fatalf("end = %v, %v", ok, err)
	}
	if ok, err := s.EndSandbox(ctx, want.ID, "again", want.Ended.Add(1), sandbox.Verdict{}, Reading{}); err != nil || ok {
		t.Fatalf("second end = %v, %v", ok, err)
	}
	check()
	if ids, err := s.SandboxesEndedBefore(ctx, want.Ended); err != nil || len(ids) != 0 {
		t.Errorf("ended before its end: %v, %v", ids, err)
	}
	if ids, err := s.SandboxesEndedBefore(ctx, want.Ended.Add(time.Second)); err != nil || !cmp.Equal(ids, []string{want.ID}) {
		t.Errorf("ended before later: %v, %v", ids, err)
	}
}

func TestSandboxesOrder(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	base := time.Now()
	var want []string
	for i, ended := range []bool{true, false, true, false} {
		r := testSandbox("me")
		r.Name, r.Created = fmt.Sprint(i), base.Add(time.Duration(i)*time.Second)
		if err := s.InsertSandbox(ctx, r); err != nil {
			t.Fatal(err)
		}
		if ended {
			if _, err := s.EndSandbox(ctx, r.ID, "", base.Add(time.Hour), sandbox.Verdict{}, Reading{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := testSandbox("me")
	other.Principal = "someone"
	if err := s.InsertSandbox(ctx, other); err != nil {
		t.Fatal(err)
	}
	want = []string{"3", "1", "2", "0"}
	list, err := s.Sandboxes(ctx, sandbox.Local, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list {
		got = append(got, r.Name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if list, err := s.LiveSandboxes(ctx); err != nil || len(list) != 3 {
		t.Errorf("LiveSandboxes: %d, %v; want 3", len(list), err)
	}
}

func TestRunRoundTrip(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	sb := testSandbox("me")
	if err := s.InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	want := Run{Principal: sandbox.Local, Timeout: 30 * time.Second, Terminal: true, KeepsStdin: true}
	want.ID, want.SandboxID, want.Status, want.Started = sandbox.NewRunID(), sb.ID, sandbox.RunRunning, s.Now()
	want.Context = &sandbox.RunContext{Name: "a", Language: "python"}
	if err := s.InsertRun(ctx, want); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got, err := s.Run(ctx, want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	}
	check()
	if err := s.RequestRunStop(ctx, want.ID); err != nil {
		t.Fatal(err)
	}
	want.StopRequested = true
	check()
	if list, err := s.RunningRuns(ctx, sb.ID); err != nil || len(list) != 1 {
		t.Fatalf("RunningRuns: %v, %v", list, err)
	}

	code := 3
	want.Status, want.Ended, want.ExitCode = sandbox.RunFinished, want.Started.Add(time.Second), &code
	want.Verdict = sandbox.Verdict{Code: sandbox.Failed, Cause: "c", NextStep: "n"}
	want.Usage = sandbox.Usage{CPUMillis: 5, PeakMemoryBytes: 1 << 40}
	want.StdoutBytes, want.StderrBytes, want.KeptBytes = 1<<33, 2, 64<<20
	want.Network = &sandbox.RunNetwork{
		Reached: []sandbox.Destination{{Host: "a.example", Port: 443, Connections: 2, Sent: 3, Received: 4}},
		Blocked: []sandbox.Destination{{Host: "b.example", Blocked: sandbox.BlockedPolicy, Connections: 1}},
	}
	want.Context = &sandbox.RunContext{Name: "a", Language: "python", Count: 3, StateLost: true, Notice: "n"}
	if ok, err := s.FinishRun(ctx, want); err != nil || !ok {
		t.Fatalf("finish = %v, %v", ok, err)
	}
	again := want
	again.Verdict.Code = sandbox.OK
	if ok, err := s.FinishRun(ctx, again); err != nil || ok {
		t.Fatalf("second finish = %v, %v", ok, err)
	}
	check()
	got, err := s.Sandbox(ctx, sb.ID)
	if err != nil || !got.Used.Equal(want.Ended) {
		t.Errorf("used = %v, %v; want the end of the run, %v", got.Used, err, want.Ended)
	}
	if list, err := s.RunningRuns(ctx, sb.ID); err != nil || len(list) != 0 {
		t.Errorf("RunningRuns: %v, %v", list, err)
	}
}

func TestEndSandboxEndsItsRuns(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	sb := testSandbox("me")
	if err := s.InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	if err := addRuns(ctx, s, sb.ID, 1); err != nil {
		t.Fatal(err)
	}
	r := Run{Principal: sandbox.Local}
	r.ID, r.SandboxID, r.Started = sandbox.NewRunID(), sb.ID, s.Now().Add(time.Second)
	if err := s.InsertRun(ctx, r); err != nil {
		t.Fatal(err)
	}
	v := sandbox.Verdict{Code: sandbox.SandboxLost, Cause: "gone"}
	if _, err := s.EndSandbox(ctx, sb.ID, "gone", s.Now(), v, Reading{}); err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(ctx, sb.ID)
	if err != nil || len(runs) != 2 {
		t.Fatalf("runs: %v, %v", runs, err)
	}
	if runs[0].Verdict.Code != sandbox.OK || runs[1].Verdict != v || runs[1].Status != sandbox.RunFinished {
		t.Errorf("verdicts %v, %v", runs[0].Verdict, runs[1].Verdict)
	}
	if runs[1].Ended.Before(runs[1].Started) {
		t.Errorf("ended %v before it started %v", runs[1].Ended, runs[1].Started)
	}
	if err := s.DeleteSandbox(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, r.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("run of a deleted sandbox: %v", err)
	}
	if err := s.InsertRun(ctx, r); err == nil {
		t.Error("a run of no sandbox was stored")
	}
}

func TestRunsEndedBefore(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	sb := testSandbox("me")
	if err := s.InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	base := s.Now()
	var ids []string
	for i := range 5 {
		r := Run{Principal: sandbox.Local}
		r.ID, r.SandboxID, r.Started = sandbox.NewRunID(), sb.ID, base
		if err := s.InsertRun(ctx, r); err != nil {
			t.Fatal(err)
		}
		r.Ended, r.KeptBytes = base.Add(time.Duration(i+1)*time.Minute), 10
		if i < 4 { // the last one goes on
			if _, err := s.FinishRun(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		ids = append(ids, r.ID)
	}
	for _, c := range []struct {
		before time.Time
		want   int // the oldest so many
	}{
		{base, 0},
		{base.Add(150 * time.Second), 2},
		{base.Add(time.Hour), 4},
	} {
		list, err := s.RunsEndedBefore(ctx, c.before)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, r := range list {
			got[r.ID] = true
		}
		want := map[string]bool{}
		for _, id := range ids[:c.want] {
			want[id] = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("before %v: -want +got\n%s", c.before.Sub(base), d)
		}
	}
	logs, err := s.KeptLogs(ctx)
	if err != nil || len(logs) != 4 {
		t.Fatalf("%d logs, %v; want those of the 4 that ended", len(logs), err)
	}
	for i, r := range logs {
		if r.ID != ids[i] || r.SandboxID != sb.ID || r.Principal != sandbox.Local || r.Bytes != 10 {
			t.Errorf("log %d: %+v", i, r)
		}
	}
}

func TestTokens(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	want := Token{ID: "tok_1", Name: "ci", Principal: "alice", Hash: [32]byte{1, 2}, Scopes: []string{"run", "files"}, Created: s.Now()}
	if err := s.PutToken(ctx, want); err != nil {
		t.Fatal(err)
	}
	if err := s.PutToken(ctx, Token{ID: "tok_2", Hash: want.Hash}); err == nil {
		t.Error("a second token with the same hash was stored")
	}
	got, err := s.FindToken(ctx, want.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if _, err := s.FindToken(ctx, [32]byte{9}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("unknown token: %v", err)
	}
	if err := s.TouchToken(ctx, want.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeToken(ctx, want.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeToken(ctx, "tok_9"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("revoke of an unknown token: %v", err)
	}
	if _, err := s.FindToken(ctx, want.Hash); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("revoked token: %v", err)
	}
	list, err := s.ListTokens(ctx)
	if err != nil || len(list) != 1 || list[0].Revoked.IsZero() || list[0].Used.IsZero() {
		t.Errorf("ListTokens: %+v, %v", list, err)
	}
}

func TestOpen(t *testing.T) {
	ctx := t.Context()
	t.Run("Modes", func(t *testing.T) {
		name := "state with ? and % and #"
		if runtime.GOOS == "windows" {
			name = "state with % and #"
		}
		dir := filepath.Join(t.TempDir(), name)
		s := mustOpen(t, dir)
		if err := s.InsertSandbox(ctx, testSandbox("me")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{FileName, FileName + "-wal", FileName + "-shm"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			} else if info.Mode() != 0o600 && runtime.GOOS != "windows" {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
	})
	t.Run("Newer", func(t *testing.T) {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		if _, err := s.write.Exec(`INSERT INTO migrations VALUES ('9999_future', 0)`); err != nil {
			t.Fatal(err)
		}
		_, err := Open(ctx, Options{Dir: dir})
		if !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
			t.Errorf("Open: %v (hint %q)", err, sandbox.HintOf(err))
		}
	})
	t.Run("NoDirectory", func(t *testing.T) {
		if _, err := Open(ctx, Options{}); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Open: %v", err)
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ctx, Options{Dir: file}); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("Open: %v", err)
		}
	})
	t.Run("ReadersCannotWrite", func(t *testing.T) {
		s := mustOpen(t, t.TempDir())
		if _, err := s.read.Exec(`DELETE FROM runs`); err == nil {
			t.Error("a reading connection wrote")
		}
	})
}

func BenchmarkRun(b *testing.B) {
	ctx := b.Context()
	s := mustOpen(b, b.TempDir())
	sb := testSandbox("me")
	if err := s.InsertSandbox(ctx, sb); err != nil {
		b.Fatal(err)
	}
	if _, err := s.StartedSandbox(ctx, sb.ID, "ref", nil, sb.Used, "", true); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := addRuns(context.WithoutCancel(ctx), s, sb.ID, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := Open(b.Context(), Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestServicesMigration opens a database of before there were services: its runs are
// none, and a new run can be one.
func TestServicesMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0011_services",
		`INSERT INTO sandboxes (id, principal, owner, detached, driver, state, name, image, network, has_env, limits, created_at, used_at)
			VALUES ('sbx', 'alice', 'o', 0, 'fake', 'running', '', 'host', 'none', 0, '{}', 1, 1)`,
		`INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin) VALUES ('run_old', 'sbx', 'alice', 1, 5, 0, 0)`)
	s := mustOpen(t, dir)
	ctx := t.Context()
	old, err := s.Run(ctx, "run_old")
	if err != nil || old.Service != nil || old.Timeout != 5 {
		t.Errorf("a run of before: %+v, %v", old, err)
	}
	code := 3
	r := Run{Principal: "alice", Keeping: Keeping{Check: &sandbox.ReadyCheck{Port: 80, Timeout: time.Minute}}}
	r.ID, r.SandboxID, r.Status, r.Started = "run_new", "sbx", sandbox.RunRunning, time.UnixMicro(2).UTC()
	r.Service = &sandbox.Service{Name: "web", State: sandbox.ServiceStarting, Restart: sandbox.RestartAlways}
	if err := s.InsertRun(ctx, r); err != nil {
		t.Fatal(err)
	}
	r.Service = &sandbox.Service{Name: "web", State: sandbox.ServiceRunning, Restart: sandbox.RestartAlways, Restarts: 2, LastExit: &code, Ports: []int{80}}
	r.Keeping.Stdout = 17
	if err := s.SetService(ctx, r); err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(ctx, "run_new")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if _, err := s.EndSandbox(ctx, "sbx", "", time.UnixMicro(3), sandbox.Verdict{Code: sandbox.SandboxLost}, Reading{}); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Run(ctx, "run_new"); err != nil || got.Service.State != sandbox.ServiceEnded || got.Service.Restarts != 2 {
		t.Errorf("after the end of its sandbox: %+v, %v", got.Service, err)
	}
}

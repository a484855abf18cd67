package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSnapshotsMigration opens a database of before snapshots, with a live sandbox.
func TestSnapshotsMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0015_snapshots", `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
		VALUES ('live', 'token:a', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`)
	s := mustOpen(t, dir)
	if list, err := s.Snapshots(t.Context(), ""); err != nil || len(list) > 0 {
		t.Errorf("without snapshots: %v, %v", list, err)
	}
	if err := s.BaseSnapshot(t.Context(), "live", "snap_1"); err != nil {
		t.Error(err)
	}
}

// kept is a snapshot that has been made.
func kept(id string) (r Snapshot) {
	r.ID, r.Sandbox, r.Bytes, r.Build = id, "box", 10, "build"
	return r
}

// TestSnapshots records a chain of three snapshots of one sandbox, removes the middle
// one, and then the first.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0015_snapshots", `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
		VALUES ('box', 'token:a', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`)
	s := mustOpen(t, dir)
	ctx := t.Context()
	setup := SnapshotSetup{Image: "python:3", ImageID: "sha256:1", Network: "none", Limits: sandbox.DefaultLimits(), Workspace: "w", Writable: []string{"/opt/x"}}
	add := func(id string) Snapshot {
		t.Helper()
		r := Snapshot{Principal: "token:a", Owner: "o", Driver: "d", Setup: setup}
		r.ID, r.Sandbox, r.State, r.Name = id, "box", sandbox.SnapshotMaking, "name"
		r.Image, r.Workspace = setup.Image, setup.Workspace
		r.Created = time.UnixMicro(int64(len(id))).UTC()
		if err := s.AddSnapshot(ctx, &r, 3, 100); err != nil {
			t.Fatal(err)
		}
		if err := s.KeptSnapshot(ctx, kept(id), 100); err != nil {
			t.Fatal(err)
		}
		r.State, r.Bytes, r.Build = sandbox.SnapshotKept, 10, "build"
		return r
	}
	check := func(want ...Snapshot) {
		t.Helper()
		got, err := s.Snapshots(ctx, "token:a")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, -want +got\n%s", err, diff)
		}
	}
	a, b, c := add("a"), add("bb"), add("ccc")
	if a.Parent != "" || b.Parent != "a" || c.Parent != "bb" {
		t.Errorf("the parents are %q, %q and %q", a.Parent, b.Parent, c.Parent)
	}
	check(c, b, a)
	full := Snapshot{Principal: "token:a"}
	full.ID = "dddd"
	if err := s.AddSnapshot(ctx, &full, 3, 100); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Errorf("a fourth of three: %v, want exhausted with a hint", err)
	}
	if err := s.AddSnapshot(ctx, &full, 4, 30); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("with 30 of 30 bytes: %v, want exhausted", err)
	}
	if others, err := s.Snapshots(ctx, "token:b"); err != nil || len(others) > 0 {
		t.Errorf("another principal has %v, %v", others, err)
	}
	if err := s.RemoveSnapshot(ctx, "bb"); err != nil {
		t.Fatal(err)
	}
	c.Parent = "a"
	check(c, a)
	for _, id := range []string{"ccc", "ccc", "a"} {
		if err := s.RemoveSnapshot(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if d := add("e"); d.Parent != "" {
		t.Errorf("after all were removed, the parent is %q", d.Parent)
	}
	want := []SnapshotStates{{sandbox.SnapshotKept, SavedStates{Build: "build", Count: 1, Bytes: 10, Oldest: time.UnixMicro(1).UTC()}}}
	if got, err := s.SnapshotStates(ctx); err != nil || !cmp.Equal(got, want) {
		t.Errorf("the states are %+v, %v, want %+v", got, err, want)
	}
	if err := s.LostSnapshot(ctx, "e"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Snapshots(ctx, ""); err != nil || len(list) != 1 || list[0].State != sandbox.SnapshotLost || list[0].Bytes != 0 {
		t.Errorf("a lost snapshot is %v, %v", list, err)
	}
}

// TestUndoMigration opens a database of before runs could be undone, with a run and a
// snapshot. A run that goes on then needs its snapshot, until it has ended.
func TestUndoMigration(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	makeBefore(t, dir, "0021_undo", `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
		VALUES ('box', 'token:a', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`,
		`INSERT INTO snapshots (id, principal, owner, driver, state, name, parent, sandbox, setup, bytes, created_at) VALUES ('old', 'token:a', 'o', 'd', 'kept', '', '', 'box', '{}', 10, 1)`)
	s := mustOpen(t, dir)
	internal := func() Snapshot {
		t.Helper()
		list, err := s.Snapshots(ctx, "")
		if err != nil || len(list) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		if old := list[1]; old.ID != "old" || old.Internal || old.Needed || old.Bytes != 10 {
			t.Errorf("the old snapshot is %+v", old)
		}
		return list[0]
	}
	r := Snapshot{Principal: "token:a", Owner: "o", Driver: "d", Internal: true, Reserved: 50}
	r.ID, r.Sandbox, r.State, r.Created = "undo", "box", sandbox.SnapshotMaking, time.UnixMicro(5).UTC()
	if err := s.AddSnapshot(ctx, &r, 10, 100); err != nil {
		t.Fatal(err)
	}
	if got := internal(); !got.Internal || got.Needed || got.Reserved != 50 {
		t.Errorf("before its run it is %+v", got)
	}
	run := Run{Principal: "token:a", Undo: "undo"}
	run.ID, run.SandboxID, run.Started = "run", "box", time.UnixMicro(6).UTC()
	if err := s.InsertRun(ctx, run); err != nil {
		t.Fatal(err)
	}
	if got := internal(); !got.Needed {
		t.Errorf("during its run it is %+v", got)
	}
	if got, err := s.Run(ctx, "run"); err != nil || got.Undo != "undo" || got.Rollback != nil {
		t.Errorf("the run is %+v, %v", got, err)
	}
	run.Ended, run.Rollback = time.UnixMicro(7).UTC(), &sandbox.Rollback{Cause: "why", Workspace: true}
	if ok, err := s.FinishRun(ctx, run); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := internal(); got.Needed {
		t.Errorf("after its run it is %+v", got)
	}
	if got, err := s.Run(ctx, "run"); err != nil || !cmp.Equal(got.Rollback, run.Rollback) {
		t.Errorf("the run has %+v, %v", got.Rollback, err)
	}
}

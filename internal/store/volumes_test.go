package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestVolumesMigration opens a database of the version before, with a live sandbox,
// and gives the next one volumes.
func TestVolumesMigration(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	makeBefore(t, dir, "0020_volumes", `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)
		VALUES ('old', 'alice', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`)
	s := mustOpen(t, dir)
	if r, err := s.Sandbox(ctx, "old"); err != nil || r.Volumes != nil {
		t.Errorf("the earlier sandbox: %+v, %v", r, err)
	}
	for _, name := range []string{"main", "v", "free"} {
		w := Workspace{ID: name, Handle: name, Principal: "alice"}
		w.Name = name
		if err := s.UseWorkspace(ctx, w, 10, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	r := Sandbox{Principal: "alice", Owner: "o", Detached: true}
	r.ID, r.State, r.Workspace, r.Created, r.Used = "new", sandbox.Starting, "main", time.UnixMicro(1), time.UnixMicro(1)
	r.Volumes = []sandbox.Volume{{Workspace: "v", Path: "/mnt/v"}, {Workspace: "main", Path: "/mnt/m", ReadOnly: true}}
	if err := s.InsertSandbox(ctx, r); err != nil {
		t.Fatal(err)
	}
	got, err := s.Sandbox(ctx, "new")
	if diff := cmp.Diff(r.Volumes, got.Volumes); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	idle, err := s.IdleWorkspaces(ctx, time.Now().Add(time.Hour))
	if err != nil || len(idle) != 1 || idle[0].Name != "free" {
		t.Errorf("idle workspaces: %+v, %v; want the one that no sandbox has", idle, err)
	}
	for name, want := range map[string]bool{"main": false, "v": false, "free": true} {
		deleted, err := s.DeleteWorkspace(ctx, name, time.Time{}, func() error {
			if !want {
				return errors.New("removed")
			}
			return nil
		})
		if err != nil || deleted != want {
			t.Errorf("delete %s: %t, %v; want %t", name, deleted, err, want)
		}
	}
}

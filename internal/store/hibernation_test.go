package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHibernationMigration opens a database of before states were recorded, with a
// hibernated sandbox: its state is not known, and can be recorded.
func TestHibernationMigration(t *testing.T) {
	const box = `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network, has_env, limits, created_at, used_at)`
	dir := t.TempDir()
	makeBefore(t, dir, "0016_hibernation",
		box+` VALUES ('a', 'alice', 'o', 1, 'd', 'r', 'hibernated', '', 'host', 'none', 0, '{}', 1, 1)`,
		box+` VALUES ('b', 'alice', 'o', 1, 'd', 'r', 'running', '', 'host', 'none', 0, '{}', 1, 1)`)
	s, ctx := mustOpen(t, dir), t.Context()
	old, err := s.Sandbox(ctx, "a")
	if err != nil || old.State != sandbox.Hibernated || old.Hibernation != (sandbox.Hibernation{}) {
		t.Errorf("a sandbox of before: %+v, %v", old, err)
	}
	at := time.UnixMicro(5).UTC()
	want := map[string]sandbox.Hibernation{
		"a": {Saved: at, Bytes: 100, Build: "x", Error: "why", Failed: time.UnixMicro(6).UTC()},
		"b": {Saved: at.Add(time.Second), Bytes: 10, Build: "x"},
	}
	for id, h := range want {
		if err := s.SetHibernation(ctx, id, h); err != nil {
			t.Fatal(err)
		}
		got, err := s.Sandbox(ctx, id)
		if diff := cmp.Diff(h, got.Hibernation); err != nil || diff != "" {
			t.Errorf("%v, -want +got\n%s", err, diff)
		}
	}
	states := func(want ...SavedStates) {
		t.Helper()
		got, err := s.SavedStates(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, -want +got\n%s", err, diff)
		}
	}
	states(SavedStates{Build: "x", Count: 2, Bytes: 110, Oldest: at})
	if err := s.SetHibernation(ctx, "b", sandbox.Hibernation{}); err != nil {
		t.Fatal(err)
	}
	states(SavedStates{Build: "x", Count: 1, Bytes: 100, Oldest: at})
	if _, err := s.EndSandbox(ctx, "a", "", at, sandbox.Verdict{}, Reading{}); err != nil {
		t.Fatal(err)
	}
	states()
}

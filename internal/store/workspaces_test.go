package store

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestWorkspaceTotals counts what all principals' workspaces held when measured.
func TestWorkspaceTotals(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check := func(count int, held sandbox.WorkspaceUsage) {
		t.Helper()
		n, got, err := s.WorkspaceTotals(ctx)
		if err != nil || n != count || got != held {
			t.Errorf("%d, %+v, %v; want %d, %+v", n, got, err, count, held)
		}
	}
	check(0, sandbox.WorkspaceUsage{})
	for i, p := range []sandbox.Principal{"alice", "bob"} {
		w := Workspace{ID: string(p) + "-id", Handle: string(p) + "-handle", Principal: p}
		w.Name = "w"
		if err := s.UseWorkspace(ctx, w, 10, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.TouchWorkspace(ctx, w.ID, w.Used, &sandbox.WorkspaceUsage{Bytes: int64(i+1) << 20, Files: int64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	check(2, sandbox.WorkspaceUsage{Bytes: 3 << 20, Files: 3})
}

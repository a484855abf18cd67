package mcpserver

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (e *fakeEngine) TakeSnapshot(_ context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	if _, err := e.find(p, id); err != nil {
		return sandbox.Snapshot{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Name: name, State: sandbox.SnapshotKept, Sandbox: id, Bytes: 1 << 20}
	if len(e.snapshots) > 0 {
		s.Parent = e.snapshots[0].ID
	}
	e.snapshots = slices.Insert(e.snapshots, 0, s)
	return s, nil
}

func (e *fakeEngine) Snapshots(_ context.Context, _ sandbox.Principal, f sandbox.SnapshotFilter) ([]sandbox.Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.snapshots), func(s sandbox.Snapshot) bool {
		return f.Sandbox != "" && s.Sandbox != f.Sandbox || f.Name != "" && s.Name != f.Name
	}), nil
}

func (e *fakeEngine) Snapshot(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshot(ref)
}

func (e *fakeEngine) snapshot(ref string) (sandbox.Snapshot, error) {
	for _, s := range e.snapshots {
		if s.ID == ref || s.Name == ref {
			return s, nil
		}
	}
	return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "snapshot: there is no snapshot %q", ref)
}

func (e *fakeEngine) RemoveSnapshot(_ context.Context, _ sandbox.Principal, ref string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.snapshot(ref)
	e.snapshots = slices.DeleteFunc(e.snapshots, func(other sandbox.Snapshot) bool { return other.ID == s.ID })
	return err
}

func (e *fakeEngine) Rollback(_ context.Context, p sandbox.Principal, id, ref string, _ bool) (sandbox.Snapshot, error) {
	if _, err := e.find(p, id); err != nil {
		return sandbox.Snapshot{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshot(ref)
}

func (e *fakeEngine) Fork(ctx context.Context, p sandbox.Principal, id string, r sandbox.ForkRequest) ([]sandbox.Fork, error) {
	if _, err := e.find(p, id); err != nil {
		return nil, err
	}
	forks := make([]sandbox.Fork, max(1, r.Count))
	for i := range forks {
		if i == 3 {
			forks[i].Err = sandbox.Errorf(sandbox.Exhausted, "there are 4 sandboxes")
			continue
		}
		forks[i].Sandbox, forks[i].Err = e.Create(ctx, p, sandbox.CreateRequest{})
	}
	return forks, nil
}

// TestSnapshotTool does every action, and what actions refuse.
func TestSnapshotTool(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	made := callTool(t, cs, "create_sandbox", nil)
	id := structured[struct {
		SandboxID string `json:"sandbox_id"`
	}](t, made).SandboxID
	do := func(a args) string {
		t.Helper()
		r := callTool(t, cs, "snapshot", a)
		if r.IsError {
			t.Errorf("%v: %s", a, text(r))
		}
		return text(r)
	}
	do(args{"action": "take", "sandbox_id": id, "snapshot": "good"})
	do(args{"action": "take", "sandbox_id": id})
	list := do(args{"action": "list"})
	if lines := strings.Split(list, "\n"); len(lines) != 2 || !strings.Contains(lines[0], "after snap_") || !strings.Contains(lines[1], "good") {
		t.Errorf("the list is\n%s", list)
	}
	if got := do(args{"action": "rollback", "sandbox_id": id, "snapshot": "good"}); !strings.Contains(got, e.snapshots[1].ID) {
		t.Errorf("rollback: %s", got)
	}
	if got := do(args{"action": "fork", "sandbox_id": id, "count": 4}); strings.Count(got, "sbx_") != 4 || !strings.Contains(got, "1 copies could not be made: there are 4") {
		t.Errorf("fork: %s", got)
	}
	do(args{"action": "delete", "snapshot": "good"})
	for _, a := range []args{
		{"action": "take"}, {"action": "rollback", "sandbox_id": id}, {"action": "delete"}, {"action": "fork"}, {"action": "other"},
		{"action": "take", "sandbox_id": id, "count": 2}, {"action": "fork", "sandbox_id": id, "snapshot": "good"},
		{"action": "rollback", "sandbox_id": id, "snapshot": "good"}, {"action": "delete", "snapshot": "good"},
	} {
		if r := callTool(t, cs, "snapshot", a); !r.IsError {
			t.Errorf("%v: %s", a, text(r))
		}
	}
}

// TestRollbackOnFailureTool: both halves of a result say what became of a failed run.
func TestRollbackOnFailureTool(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for script, want := range map[string]string{
		"out 42":               "",
		"exit 3":               "The sandbox has the state from before this run again: variables, programs and files.",
		"verdict timeout":      "The files of the workspace at /data are as the run left them.",
		"verdict sandbox_lost": "The run was not undone, so its effects may remain: the sandbox stopped.",
	} {
		for _, asked := range []bool{true, false} {
			res := callTool(t, cs, "run_code", args{"code": script, "rollback_on_failure": asked})
			r := structured[answer.Run](t, res)
			if told := asked && want != ""; (r.Rollback != nil) != told || told && !strings.Contains(text(res), want) || !told && strings.Contains(text(res), "state from before") {
				t.Errorf("%s, %t: %+v\n%s", script, asked, r.Rollback, text(res))
			}
		}
	}
}

// TestCreateFromSnapshot makes sandboxes of snapshots: with a copy of the workspace that
// the snapshot's sandbox had, unless the call names another one.
func TestCreateFromSnapshot(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	e.snapshots = []sandbox.Snapshot{{ID: "snap_1", Name: "plain"}, {ID: "snap_2", Name: "spacious", Workspace: "w"}}
	for _, tt := range []struct {
		args   args
		id     string
		copies bool
	}{
		{args{"snapshot": "plain"}, "snap_1", false},
		{args{"snapshot": "snap_2"}, "snap_2", true},
		{args{"snapshot": "spacious", "workspace": "mine"}, "snap_2", false},
		{args{}, "", false},
	} {
		if res := callTool(t, cs, "create_sandbox", tt.args); res.IsError {
			t.Errorf("%v: %s", tt.args, text(res))
		}
		if got := e.creates[len(e.creates)-1]; got.Snapshot != tt.id || got.CopyWorkspace != tt.copies {
			t.Errorf("%v asks for %+v", tt.args, got)
		}
	}
	made := len(e.creates)
	if res := callTool(t, cs, "create_sandbox", args{"snapshot": "other"}); !res.IsError || len(e.creates) != made {
		t.Errorf("of no snapshot: %s", text(res))
	}
}

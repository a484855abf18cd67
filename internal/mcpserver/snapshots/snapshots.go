// Package snapshots does the actions of the tool snapshot.
package snapshots

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Engine is the part of package engine that the actions use.
type Engine interface {
	TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, p sandbox.Principal, filter sandbox.SnapshotFilter) ([]sandbox.Snapshot, error)
	// Snapshot returns a snapshot by its identifier, or the newest one of that name.
	Snapshot(ctx context.Context, p sandbox.Principal, ref string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error
	// Rollback gives a sandbox the state of a snapshot.
	Rollback(ctx context.Context, p sandbox.Principal, id, ref string, endRuns bool) (sandbox.Snapshot, error)
	// Fork makes copies of a running sandbox.
	Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
}

// The actions.
const (
	Take     = "take"
	List     = "list"
	Rollback = "rollback"
	Fork     = "fork"
	Delete   = "delete"
)

// Actions are all actions, in the order in which models see them.
var Actions = []string{Take, List, Rollback, Fork, Delete}

// Arguments are the arguments of the tool.
type Arguments struct {
	Action    string `json:"action"`
	SandboxID string `json:"sandbox_id,omitempty"`
	Snapshot  string `json:"snapshot,omitempty"`
	Count     int    `json:"count,omitempty"`
}

// A Result is what programs get.
type Result struct {
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	Sandboxes []string   `json:"sandboxes,omitempty"`
}

// A Snapshot is one snapshot of a Result.
type Snapshot struct {
	ID        string                `json:"snapshot_id"`
	Name      string                `json:"name,omitempty"`
	State     sandbox.SnapshotState `json:"state,omitempty"`
	SandboxID string                `json:"sandbox_id,omitempty"`
	Parent    string                `json:"parent,omitempty"`
	Bytes     int64                 `json:"bytes,omitempty"`
	Created   time.Time             `json:"created,omitzero"`
}

func of(s sandbox.Snapshot) Snapshot {
	return Snapshot{s.ID, s.Name, s.State, s.Sandbox, s.Parent, s.Bytes, s.Created}
}

// check returns an error for an argument that an action needs or does not have.
func (a *Arguments) check() error {
	refuse := func(name, text string) error {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: the action %s %s", name, a.Action, text), "the actions are %s", strings.Join(Actions, ", "))
	}
	switch {
	case a.SandboxID == "" && (a.Action == Take || a.Action == Rollback || a.Action == Fork):
		return refuse("sandbox_id", "needs a sandbox")
	case a.Snapshot == "" && (a.Action == Rollback || a.Action == Delete):
		return refuse("snapshot", "needs a snapshot")
	case a.Snapshot != "" && a.Action == Fork:
		return refuse("snapshot", "copies a sandbox as it is now: roll back first")
	case a.Count != 0 && a.Action != Fork:
		return refuse("count", "makes no copies")
	}
	return nil
}

// Do does an action.
func Do(ctx context.Context, e Engine, p sandbox.Principal, a Arguments) (Result, string, error) {
	if err := a.check(); err != nil {
		return Result{}, "", err
	}
	var r Result
	switch a.Action {
	case Take:
		s, err := e.TakeSnapshot(ctx, p, a.SandboxID, a.Snapshot)
		r.Snapshots = []Snapshot{of(s)}
		return r, fmt.Sprintf("took snapshot %s of %s (%s). It has programs, variables and files, except those of a workspace at %s.",
			s.ID, a.SandboxID, s.Size(), sandbox.WorkDir), err
	case List:
		list, err := e.Snapshots(ctx, p, sandbox.SnapshotFilter{Sandbox: a.SandboxID, Name: a.Snapshot})
		return listed(list), text(list), err
	case Rollback:
		s, err := e.Rollback(ctx, p, a.SandboxID, a.Snapshot, false)
		r.Snapshots, r.Sandboxes = []Snapshot{of(s)}, []string{a.SandboxID}
		note := ""
		if s.Workspace != "" {
			note = " The files of the workspace are as they were before the rollback."
		}
		return r, fmt.Sprintf("%s has the state of snapshot %s again.%s", a.SandboxID, s.ID, note), err
	case Fork:
		return fork(ctx, e, p, a)
	case Delete:
		err := e.RemoveSnapshot(ctx, p, a.Snapshot)
		return r, "deleted snapshot " + argument.Show(a.Snapshot), err
	}
	return r, "", sandbox.Errorf(sandbox.Invalid, "action: %s is none of %s", argument.Show(a.Action), strings.Join(Actions, ", "))
}

// Complete completes a request for a sandbox of a snapshot, if it names one: without a
// workspace of its own, the sandbox gets a copy of the snapshot's.
func Complete(ctx context.Context, e Engine, p sandbox.Principal, req *sandbox.CreateRequest) error {
	if req.Snapshot == "" {
		return nil
	}
	s, err := e.Snapshot(ctx, p, req.Snapshot)
	if err != nil {
		return err
	}
	req.Snapshot, req.CopyWorkspace = s.ID, s.Workspace != "" && req.Workspace == ""
	return nil
}

func listed(list []sandbox.Snapshot) (r Result) {
	for _, s := range list {
		r.Snapshots = append(r.Snapshots, of(s))
	}
	return r
}

// maxListed bounds the snapshots that a model sees.
const maxListed = 50

func text(list []sandbox.Snapshot) string {
	if len(list) == 0 {
		return "no snapshots"
	}
	var b strings.Builder
	for i, s := range list {
		if i == maxListed {
			fmt.Fprintf(&b, "and %d older ones\n", len(list)-i)
			break
		}
		fmt.Fprintf(&b, "%s of %s, %s, %s", s.ID, s.Sandbox, s.Size(), s.Created.Format(time.RFC3339))
		if s.Name != "" {
			b.WriteString(", " + answer.ShownName(s.Name))
		}
		if s.Parent != "" {
			b.WriteString(", after " + s.Parent)
		}
		if s.State != sandbox.SnapshotKept {
			b.WriteString(", " + string(s.State))
		}
		if s.Disk {
			b.WriteString(", files without memory")
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func fork(ctx context.Context, e Engine, p sandbox.Principal, a Arguments) (r Result, said string, err error) {
	forks, err := e.Fork(ctx, p, a.SandboxID, sandbox.ForkRequest{Count: a.Count, CopyWorkspace: true})
	if err != nil {
		return r, "", err
	}
	var first error
	for _, f := range forks {
		if f.Err == nil {
			r.Sandboxes = append(r.Sandboxes, f.Sandbox.ID)
		} else if first == nil {
			first = f.Err
		}
	}
	if len(r.Sandboxes) == 0 {
		return r, "", first
	}
	said = "made copies of " + a.SandboxID + ": " + strings.Join(r.Sandboxes, ", ")
	if first != nil {
		said += fmt.Sprintf("\n%d copies could not be made: %v", len(forks)-len(r.Sandboxes), first)
	}
	return r, said, nil
}

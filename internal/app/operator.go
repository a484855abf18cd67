package app

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The command line belongs to the operator: a user who can open the state
// directory may see and stop everything in it. Its requests to the engine are in
// the name of the object's principal.

// Sandboxes returns every live sandbox of the state directory.
func (s *System) Sandboxes(ctx context.Context) ([]sandbox.Sandbox, error) {
	records, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var list []sandbox.Sandbox
	for _, r := range records {
		// The engine adds the state that the record lacks.
		box, err := s.Engine.Get(ctx, r.Principal, r.ID)
		if errors.Is(err, sandbox.NotFound) || err == nil && box.State == sandbox.Stopped {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, box)
	}
	return list, nil
}

// StopSandbox stops any principal's sandbox. The error wraps [sandbox.NotFound]
// if there is none.
func (s *System) StopSandbox(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := s.store.Sandbox(ctx, id)
	if err != nil {
		return err
	}
	return s.Engine.Stop(ctx, r.Principal, id)
}

// Logs calls emit with the output of a run, or of each run of a sandbox in turn.
// With follow, it continues until the run has ended; otherwise it emits the
// existing output.
func (s *System) Logs(ctx context.Context, id string, follow bool, emit func(sandbox.StreamName, []byte) error) error {
	switch {
	case sandbox.ValidRunID(id):
		return s.logs(ctx, id, follow, emit)
	case sandbox.ValidID(id):
		if _, err := s.store.Sandbox(ctx, id); err != nil {
			return err
		}
		runs, err := s.store.Runs(ctx, id)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if err := s.logs(ctx, r.ID, follow, emit); err != nil {
				return err
			}
		}
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a run or a sandbox", id), "glovebox ps lists sandboxes")
}

// logsPiece is the maximum size of one read of output, in bytes.
const logsPiece = 256 << 10

func (s *System) logs(ctx context.Context, id string, follow bool, emit func(sandbox.StreamName, []byte) error) error {
	run, err := s.store.Run(ctx, id)
	if err != nil {
		return err
	}
	if follow || run.Status == sandbox.RunFinished {
		return s.Engine.Follow(ctx, run.Principal, id, emit)
	}
	for _, stream := range []sandbox.StreamName{sandbox.Stdout, sandbox.Stderr} {
		for offset, total := int64(0), int64(1); offset < total; {
			var data []byte
			data, total, err = s.Engine.ReadOutput(ctx, run.Principal, id, stream, offset, logsPiece)
			if err != nil {
				return err
			}
			if len(data) == 0 {
				break
			}
			if err := emit(stream, data); err != nil {
				return err
			}
			offset += int64(len(data))
		}
	}
	return nil
}

// Connections returns the latest recorded connections of any principal's
// sandbox, at most limit, the oldest first. The error wraps [sandbox.NotFound]
// if there is no such sandbox.
func (s *System) Connections(ctx context.Context, id string, limit int) ([]sandbox.Connection, error) {
	if !sandbox.ValidID(id) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := s.store.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.Engine.Connections(ctx, r.Principal, id, limit)
}

// A Workspace is a workspace and its principal.
type Workspace struct {
	sandbox.Workspace
	Principal sandbox.Principal `json:"principal"`
}

// Workspaces returns every workspace of the state directory.
func (s *System) Workspaces(ctx context.Context) ([]Workspace, error) {
	records, err := s.store.Workspaces(ctx, "")
	if err != nil {
		return nil, err
	}
	list := []Workspace{}
	for _, r := range records {
		r.Quota = s.opts.Config.Workspace.Quota()
		list = append(list, Workspace{r.Workspace, r.Principal})
	}
	return list, nil
}

package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// snapshotTime is the timeout for an answer about snapshots: copies of large sandboxes
// take their time.
const snapshotTime = 10 * time.Minute

// A SnapshotRequest asks for one action with a sandbox.
type SnapshotRequest struct {
	Action string              `json:"action"` // take, rollback or fork
	Name   string              `json:"name,omitempty"`
	Disk   bool                `json:"disk,omitempty"` // without memory, for take
	Ref    string              `json:"ref,omitempty"`
	End    bool                `json:"end,omitempty"` // the runs of the sandbox, for rollback
	Fork   sandbox.ForkRequest `json:"fork,omitzero"`
}

// A SnapshotAnswer is the result of an action.
type SnapshotAnswer struct {
	Snapshot sandbox.Snapshot `json:"snapshot"`
	// Copies are the identifiers of the copies, and Problems why there are not more.
	Copies   []string `json:"copies,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// The actions of a SnapshotRequest.
const (
	SnapshotTake     = "take"
	SnapshotRollback = "rollback"
	SnapshotFork     = "fork"
)

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var req SnapshotRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&req); err != nil {
		refuse(w, sandbox.Errorf(sandbox.Invalid, "%w", err))
		return
	}
	p, err := s.engine.Owner(r.Context(), id)
	if err != nil {
		refuse(w, err)
		return
	}
	var a SnapshotAnswer
	switch req.Action {
	case SnapshotTake:
		take := s.engine.TakeSnapshot
		if req.Disk {
			take = s.engine.TakeDiskSnapshot
		}
		a.Snapshot, err = take(r.Context(), p, id, req.Name)
	case SnapshotRollback:
		a.Snapshot, err = s.engine.Rollback(r.Context(), p, id, req.Ref, req.End)
	case SnapshotFork:
		var forks []sandbox.Fork
		forks, err = s.engine.Fork(r.Context(), p, id, req.Fork)
		for _, f := range forks {
			if f.Err != nil {
				a.Problems = append(a.Problems, f.Err.Error())
			} else {
				a.Copies = append(a.Copies, f.Sandbox.ID)
			}
		}
	default:
		err = sandbox.Errorf(sandbox.Invalid, "action: %q", req.Action)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, a)
}

// Snapshot does an action with a sandbox.
func (c Client) Snapshot(ctx context.Context, id string, req SnapshotRequest) (SnapshotAnswer, error) {
	conn, resp, err := c.askWithin(ctx, snapshotTime, http.MethodPost, "/sandboxes/"+id+"/snapshot", req)
	if err != nil {
		return SnapshotAnswer{}, err
	}
	defer conn.Close()
	var a SnapshotAnswer
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&a); err != nil {
		return SnapshotAnswer{}, sandbox.Errorf(sandbox.Unavailable, "read answer: %w", err)
	}
	return a, nil
}

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Snapshots are the actions of package engine on the states of sandboxes.
type Snapshots interface {
	TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, p sandbox.Principal, filter sandbox.SnapshotFilter) ([]sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error
	Rollback(ctx context.Context, p sandbox.Principal, id, ref string, endRuns bool) (sandbox.Snapshot, error)
	Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
}

// shownSnapshots bounds the snapshots on a sandbox's page.
const shownSnapshots = 100

// A snapshotsView is the part of a sandbox's page about its snapshots.
type snapshotsView struct {
	List []sandbox.Snapshot // the newest first
	More int                // snapshots that are not in List
	// Return is true if the sandbox can return to one.
	Return bool
	// Missing and Hint say why there can be none; both are "" if there can.
	Missing, Hint string
}

func (s *Server) snapshotsView(ctx context.Context, p sandbox.Principal, id string) (v snapshotsView, err error) {
	if s.opts.NoSnapshots != nil {
		problem := sandbox.ProblemOf(s.opts.NoSnapshots, nil)
		return snapshotsView{Missing: problem.Message, Hint: problem.Hint}, nil
	}
	v.Return = s.opts.NoRollback == nil
	v.List, err = s.opts.Engine.Snapshots(ctx, p, sandbox.SnapshotFilter{Sandbox: id})
	if n := len(v.List); n > shownSnapshots {
		v.List, v.More = v.List[:shownSnapshots], n-shownSnapshots
	}
	return v, err
}

func snapshotsPath(id string) string { return sandboxPath(id) + "#snapshots" }

// aboutSnapshots adds a page that changes the state of a sandbox. An error is said on
// the sandbox's page.
func (s *Server) aboutSnapshots(pattern string, do func(w http.ResponseWriter, r *http.Request, sess *session, id string) error) {
	s.page("POST "+Path+"sandboxes/{id}/"+pattern, func(w http.ResponseWriter, r *http.Request, sess *session) error {
		if err := r.ParseForm(); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "the form cannot be read")
		}
		if err := do(w, r, sess, sandbox.CanonicalID(r.PathValue("id"))); err != nil {
			return s.sayOnSandbox(w, r, sess, err)
		}
		return nil
	})
}

// sayOnSandbox shows the page of a sandbox with an error above it. Without that page, it
// returns the error.
func (s *Server) sayOnSandbox(w http.ResponseWriter, r *http.Request, sess *session, err error) error {
	p := sandbox.ProblemOf(err, nil)
	v, gone := s.sandboxView(r.Context(), r, sess)
	if p.Kind == sandbox.Internal || gone != nil {
		return err
	}
	v.Wrong, v.WrongHint = p.Message, p.Hint
	s.show(w, r, p.Kind.HTTPStatus(), "sandbox", v)
	return nil
}

func (s *Server) takeSnapshot(w http.ResponseWriter, r *http.Request, sess *session, id string) error {
	if _, err := s.opts.Engine.TakeSnapshot(r.Context(), sess.id.Principal, id, strings.TrimSpace(r.PostFormValue("name"))); err != nil {
		return err
	}
	http.Redirect(w, r, snapshotsPath(id), http.StatusSeeOther)
	return nil
}

// snapshotOf returns the snapshot that a request names by its identifier. The engine
// takes names too, of which the newest snapshot counts.
func snapshotOf(r *http.Request) (string, error) {
	ref := r.PathValue("snapshot")
	if !sandbox.ValidSnapshotID(ref) {
		return "", sandbox.Errorf(sandbox.NotFound, "snapshot: there is no snapshot of that identifier")
	}
	return ref, nil
}

func (s *Server) rollback(w http.ResponseWriter, r *http.Request, sess *session, id string) error {
	ref, err := snapshotOf(r)
	if err != nil {
		return err
	}
	if _, err := s.opts.Engine.Rollback(r.Context(), sess.id.Principal, id, ref, r.PostFormValue("stop_runs") != ""); err != nil {
		return err
	}
	http.Redirect(w, r, sandboxPath(id), http.StatusSeeOther)
	return nil
}

func (s *Server) removeSnapshot(w http.ResponseWriter, r *http.Request, sess *session, id string) error {
	ref, err := snapshotOf(r)
	if err == nil {
		err = s.opts.Engine.RemoveSnapshot(r.Context(), sess.id.Principal, ref)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, snapshotsPath(id), http.StatusSeeOther)
	return nil
}

// fork copies a sandbox. It leads to the copy, or to the page of all sandboxes if there
// are several. If some copies could not be made, the sandbox's page says so.
func (s *Server) fork(w http.ResponseWriter, r *http.Request, sess *session, id string) error {
	count, err := strconv.Atoi(r.PostFormValue("count"))
	if err != nil || count < 1 || count > sandbox.MaxForks {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "count: it is not a number from 1 to %d", sandbox.MaxForks), "ask for fewer, several times")
	}
	forks, err := s.opts.Engine.Fork(r.Context(), sess.id.Principal, id, sandbox.ForkRequest{Count: count, CopyWorkspace: r.PostFormValue("copy_workspace") != ""})
	if err != nil {
		return err
	}
	var made []sandbox.Sandbox
	var first error
	for _, f := range forks {
		if f.Err == nil {
			made = append(made, f.Sandbox)
		} else if first == nil {
			first = f.Err
		}
	}
	switch {
	case first != nil && len(made) == 0:
		return first
	case first != nil:
		problem := sandbox.ProblemOf(first, nil)
		if problem.Kind == sandbox.Internal {
			s.opts.Log.Error("copy sandbox", "sandbox", id, "error", first)
			problem.Message = "the server's log says why"
		}
		v, err := s.sandboxView(r.Context(), r, sess)
		if err != nil {
			return err
		}
		v.Copies, v.WrongHint = made, problem.Hint
		v.Wrong = fmt.Sprintf("Only %d of %d copies were made: %s", len(made), len(forks), problem.Message)
		s.show(w, r, http.StatusOK, "sandbox", v)
	case len(made) == 1:
		http.Redirect(w, r, sandboxPath(made[0].ID), http.StatusSeeOther)
	default:
		http.Redirect(w, r, Path, http.StatusSeeOther)
	}
	return nil
}

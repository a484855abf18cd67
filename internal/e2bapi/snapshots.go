package e2bapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/e2bapi/templates"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// defaultForkTimeout is the lifetime of a fork if its creator does not specify one.
const defaultForkTimeout = 15 * time.Second

// A forkResult is one fork of an answer, or the reason why there is none.
type forkResult struct {
	Sandbox *sandboxAnswer `json:"sandbox,omitempty"`
	Error   *forkError     `json:"error,omitempty"`
}

type forkError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// running returns a sandbox that must not be paused.
func (s *Server) running(r *http.Request, p sandbox.Principal, what string) (sandbox.Sandbox, error) {
	sb, err := s.get(r, p)
	if err == nil && sb.State == sandbox.Hibernated {
		err = sandbox.Errorf(sandbox.Conflict, "sandbox %s is paused and cannot be %s; resume it first", sandbox.HostID(sb.ID), what)
	}
	return sb, err
}

// busy converts the engine's conflict for a sandbox that is in use: E2B's clients take
// a conflict for a paused sandbox.
func (s *Server) busy(r *http.Request, p sandbox.Principal, err error) error {
	if err = s.gone(r, p, err); errors.Is(err, sandbox.Conflict) {
		return sandbox.Errorf(sandbox.Unavailable, "%s", textOf(err))
	}
	return err
}

func (s *Server) fork(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Timeout timeoutField `json:"timeout"`
		Count   *int         `json:"count"`
		Memory  *bool        `json:"memory"` // ours, beyond E2B's protocol
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	req := sandbox.ForkRequest{Count: 1, TTL: defaultForkTimeout, CopyWorkspace: true, Disk: in.Memory != nil && !*in.Memory}
	if in.Count != nil {
		if req.Count = *in.Count; req.Count < 1 {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "count: %d is not between 1 and %d", req.Count, sandbox.MaxForks)
		}
	}
	if in.Timeout != nil {
		d, err := ttl(in.Timeout)
		if err != nil {
			return 0, nil, err
		}
		req.TTL = max(d, sandbox.MinIdle) // the engine's zero is no end
	}
	sb, err := s.running(r, p, "forked")
	if err != nil {
		return 0, nil, err
	}
	forks, err := s.opts.Engine.Fork(r.Context(), p, sb.ID, req)
	if err != nil {
		return 0, nil, s.busy(r, p, err)
	}
	results := make([]forkResult, len(forks))
	for i, f := range forks {
		if f.Err != nil {
			results[i].Error = &forkError{statusOf(f.Err), textOf(f.Err)}
			continue
		}
		access := s.answerOf(r, f.Sandbox)
		results[i].Sandbox = &access
		s.journal.add(f.Sandbox.ID, "info", "the sandbox was forked from "+sandbox.HostID(sb.ID), nil)
	}
	s.journal.add(sb.ID, "info", "the sandbox was forked", nil)
	return http.StatusCreated, results, nil
}

// A snapshotEntry is a snapshot in E2B's format.
type snapshotEntry struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func snapshotOf(s sandbox.Snapshot) snapshotEntry {
	e := snapshotEntry{SnapshotID: s.ID, Names: []string{}}
	if s.Name != "" {
		e.Names = append(e.Names, s.Name)
	}
	return e
}

func (s *Server) takeSnapshot(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"` // ours, beyond E2B's protocol
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	sb, err := s.running(r, p, "snapshotted")
	if err != nil {
		return 0, nil, err
	}
	take := s.opts.Engine.TakeSnapshot
	if in.Memory != nil && !*in.Memory {
		take = s.opts.Engine.TakeDiskSnapshot
	}
	snap, err := take(r.Context(), p, sb.ID, in.Name)
	if err != nil {
		return 0, nil, s.busy(r, p, err)
	}
	s.journal.add(sb.ID, "info", "the snapshot "+snap.ID+" was taken", nil)
	return http.StatusCreated, snapshotOf(snap), nil
}

func (s *Server) snapshots(r *http.Request, p sandbox.Principal) (int, any, error) {
	q := r.URL.Query()
	limit := maxPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return 0, nil, sandbox.Errorf(sandbox.Invalid, "limit: %s is not between 1 and %d", short(text), maxPage)
		}
		limit = n
	}
	all, err := s.opts.Engine.Snapshots(r.Context(), p, sandbox.SnapshotFilter{Sandbox: sandbox.CanonicalID(q.Get("sandboxID")), Name: q.Get("name")})
	if err != nil {
		return 0, nil, err
	}
	var from *cursor
	if text := q.Get("nextToken"); text != "" {
		if from, err = parseCursor(text); err != nil {
			return 0, nil, err
		}
	}
	items, next := []snapshotEntry{}, ""
	var last cursor
	for _, snap := range all { // the newest first
		at := cursor{snap.Created.UnixMicro(), snap.ID}
		if snap.State != sandbox.SnapshotKept || from != nil && (at.started > from.started || at.started == from.started && at.id <= from.id) {
			continue
		}
		if len(items) == limit {
			next = last.String()
			break
		}
		items, last = append(items, snapshotOf(snap)), at
	}
	return http.StatusOK, page{items: items, next: next}, nil
}

// deleteTemplate is the pattern by which E2B's clients delete templates and snapshots.
const deleteTemplate = "DELETE /templates/{id}"

// orSnapshot returns a handler that deletes a snapshot, or a template by h.
func (s *Server) orSnapshot(h templates.Handler) templates.Handler {
	return func(r *http.Request, p sandbox.Principal) (int, any, error) {
		err := s.opts.Engine.RemoveSnapshot(r.Context(), p, r.PathValue("id"))
		if errors.Is(err, sandbox.NotFound) && !sandbox.ValidSnapshotID(r.PathValue("id")) {
			return h(r, p)
		}
		return http.StatusNoContent, nil, err
	}
}

// useSnapshot completes a request whose template is a snapshot of the principal, by its
// identifier or name.
func (s *Server) useSnapshot(ctx context.Context, p sandbox.Principal, req *sandbox.CreateRequest) error {
	if req.Image == "" {
		return nil
	}
	snap, err := s.opts.Engine.Snapshot(ctx, p, req.Image)
	if errors.Is(err, sandbox.NotFound) && !sandbox.ValidSnapshotID(req.Image) {
		return nil // an image or a template
	}
	if err != nil {
		return err
	}
	req.Image, req.Snapshot, req.CopyWorkspace = "", snap.ID, snap.Workspace != "" && req.Workspace == ""
	// How programs start is a part of the template of the sandbox that it is of.
	for _, label := range []string{labelAlias, labelUser, labelWorkDir, labelVolume, labelAgent} {
		if value := snap.Labels[label]; value != "" {
			req.Labels[label] = value
		}
	}
	req.Labels[labelTemplate] = snap.ID
	return nil
}

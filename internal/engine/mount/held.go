package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Held is the workspaces of one sandbox: the one at [sandbox.WorkDir], and its
// volumes. Each keeps its own quota. A nil Held is a sandbox without workspaces.
type Held struct {
	main *Mount
	all  []volume // with main, which comes first
}

// A volume is a workspace at its place in a sandbox.
type volume struct {
	*Mount
	path     string
	readOnly bool
}

// Hold returns workspaces of p for a sandbox, until Unmount. It creates missing
// ones.
func (s *Set) Hold(ctx context.Context, p sandbox.Principal, name string, volumes []sandbox.Volume) (_ *Held, err error) {
	main, err := s.Mount(ctx, p, name, true)
	if err != nil {
		return nil, err
	}
	h := &Held{main: main, all: []volume{{Mount: main, path: sandbox.WorkDir}}}
	for _, v := range volumes {
		m, err := s.Mount(ctx, p, v.Workspace, true)
		if err != nil {
			h.release()
			return nil, sandbox.Wrap(err, "mount volume", v.Workspace)
		}
		h.all = append(h.all, volume{m, v.Path, v.ReadOnly})
	}
	return h, nil
}

// writable returns each workspace that programs may write, once.
func (h *Held) writable() []*Mount {
	if h == nil {
		return nil
	}
	var list []*Mount
	seen := map[*Mount]bool{}
	for _, v := range h.all {
		if !v.readOnly && !seen[v.Mount] {
			seen[v.Mount] = true
			list = append(list, v.Mount)
		}
	}
	return list
}

// volumes are the writable workspaces without the main one.
func (h *Held) volumes() []*Mount { return h.writable()[1:] }

// Wakes is [Mount.Wakes] of each workspace that programs may write.
func (h *Held) Wakes(b Sandbox) {
	for _, m := range h.writable() {
		m.Wakes(b)
	}
}

// Rests is [Mount.Rests] of each of them.
func (h *Held) Rests(b Sandbox) {
	for _, m := range h.writable() {
		m.Rests(b)
	}
}

// Unmount ends a sandbox's use of its workspaces.
func (h *Held) Unmount(b Sandbox) {
	for _, m := range h.writable() {
		m.Rests(b)
		m.Leaves(b)
	}
	h.release()
}

func (h *Held) release() {
	if h == nil {
		return
	}
	for _, v := range h.all {
		v.Release()
	}
}

// SetIn sets the directories of a box in its specification.
func (h *Held) SetIn(spec *driver.Spec) {
	if h == nil {
		return
	}
	spec.Workspace = h.main.Path()
	for _, v := range h.all[1:] {
		spec.Mounts = append(spec.Mounts, driver.Mount{Path: v.path, Dir: v.Path(), ReadOnly: v.readOnly})
	}
}

// Main returns the workspace at [sandbox.WorkDir], or nil. What a run changes is
// reported of this one only, and only this one can be a copy.
func (h *Held) Main() *Mount {
	if h == nil {
		return nil
	}
	return h.main
}

// at returns the writable workspace that has a path of the sandbox, or nil. It
// compares paths only, and resolves no symbolic links.
func (h *Held) at(p string) *Mount {
	if h == nil {
		return nil
	}
	p = path.Clean(request.Absolute(p))
	for _, v := range h.all {
		if strings.HasPrefix(p, v.path+"/") {
			if v.readOnly {
				return nil
			}
			return v.Mount
		}
	}
	return nil
}

// Bound keeps a write to a path of a sandbox within the quota, if the path is
// in a workspace. The caller must call done.
func (h *Held) Bound(ctx context.Context, path string, r io.Reader) (_ io.Reader, done func(), _ error) {
	m := h.at(path)
	if m == nil {
		return r, func() {}, nil
	}
	if err := m.Admit(ctx, nil); err != nil {
		return nil, nil, err
	}
	// Data that was written stays counted until the next count of the
	// workspace.
	q, err := m.Bounded(ctx, r, -1, false)
	if err != nil {
		return nil, nil, err
	}
	return q, q.Done, nil
}

// BoundForward keeps a request to a guest within the quotas of the workspaces. A
// request that starts a program is treated like a run, and an upload like the
// server's own. For an upload that counts, it returns the reader, and the
// caller must call Done.
func (h *Held) BoundForward(req *http.Request) (*Reader, error) {
	if h == nil || req.Method != http.MethodPost {
		return nil, nil
	}
	target := h.main
	switch req.URL.Path {
	case guestapi.ProcStart, guestapi.PathExecute:
		return nil, h.admit(req.Context(), h.writable())
	case guestapi.PathFiles:
		// Without a path, the form in the body names the files. Those in a volume are
		// then counted by its watcher.
		if path := req.URL.Query().Get("path"); strings.HasPrefix(path, "/") {
			target = h.at(path)
		} else if err := h.admit(req.Context(), h.volumes()); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	if target == nil || req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	if err := target.Admit(req.Context(), nil); err != nil {
		return nil, err
	}
	size := req.ContentLength
	if size <= 0 || req.Header.Get("Content-Encoding") != "" {
		size = -1
	}
	q, err := target.Bounded(req.Context(), req.Body, size, false)
	if err != nil {
		return nil, err
	}
	req.Body = readCloser{q, req.Body}
	return q, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

func (h *Held) admit(ctx context.Context, mounts []*Mount) error {
	for _, m := range mounts {
		if err := m.Admit(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// Begin begins a run; see [Mount.Begin]. The baseline has the usage of each volume,
// but no snapshot: what a run changes there is not reported.
func (h *Held) Begin(ctx context.Context, r Run) (*Baseline, error) {
	if h == nil {
		return nil, nil
	}
	b, err := h.main.Begin(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, m := range h.volumes() {
		if err = m.enter(ctx, r); err != nil {
			break
		}
		usage, known := m.held()
		if !known {
			if usage, err = m.measure(ctx); err != nil {
				err = m.tooMuch(err)
				break
			}
		}
		b.volumes = append(b.volumes, usage)
	}
	if err != nil {
		h.Leave(r)
		return nil, err
	}
	return b, nil
}

// End ends a run. It returns what changed in the workspace at [sandbox.WorkDir], and
// an error of kind Exhausted if a workspace is over its quota.
func (h *Held) End(ctx context.Context, r Run, b *Baseline) (*sandbox.Changes, error) {
	if h == nil || b == nil {
		return nil, nil
	}
	changes, err := h.main.End(ctx, r, b)
	for i, m := range h.volumes() {
		var before *sandbox.WorkspaceUsage
		if i < len(b.volumes) { // another process began the run otherwise
			before = &b.volumes[i]
		}
		if fault := m.endVolume(ctx, r, before); fault != nil {
			err = errors.Join(err, fmt.Errorf("volume %s: %w", excerpt.Quote(m.rec.Name), fault))
		}
	}
	return changes, err
}

// endVolume ends a run that may have written to a volume. before is the usage when
// the run began; nil if it is not known.
func (m *Mount) endVolume(ctx context.Context, r Run, before *sandbox.WorkspaceUsage) error {
	defer m.Leave(r)
	usage, err := m.measure(ctx)
	if err != nil {
		return m.tooMuch(err)
	}
	m.note(&usage)
	if before == nil {
		return nil
	}
	if err := m.overQuota(ctx, usage, *before); err != nil {
		m.blame(usage)
		return err
	}
	return nil
}

// Resume counts a run that another process began.
func (h *Held) Resume(r Run) {
	for _, m := range h.writable() {
		m.Resume(r)
	}
}

// Leave counts a run as ended.
func (h *Held) Leave(r Run) {
	for _, m := range h.writable() {
		m.Leave(r)
	}
}

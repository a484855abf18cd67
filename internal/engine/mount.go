package engine

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A mount is an open workspace of this process, used by sandboxes or by a
// transfer. Its watcher enforces the quota while a sandbox with the workspace
// is awake.
type mount struct {
	e   *Engine
	rec store.Workspace // never changed
	id  workspace.ID    // never changed
	ws  workspace.Opened

	users int // guarded by e.mu

	// watch is the state of watching. Only the watcher's goroutine uses it.
	watch watcher

	mu      sync.Mutex
	last    *workspace.Snapshot // nil until it is needed
	holds   holding
	touched time.Time // when this process itself last changed a file
	// awake are the sandboxes that may write to it. runs are the runs in
	// progress in them. While awake has a sandbox, stop ends the watcher;
	// watched is closed when the watcher has ended.
	awake   map[*box]bool
	boxes   map[*box]bool // that were awake and are not gone yet
	runs    map[*run]bool
	stop    context.CancelFunc
	watched chan struct{}
	// gate is nil while runs may begin; otherwise it is closed when they may
	// again.
	gate chan struct{}
	// blamed is the usage after a run that ended because it left too much. It
	// is nil once the watcher knows.
	blamed  *sandbox.WorkspaceUsage
	noted   sandbox.WorkspaceUsage // usage in the store, written at notedAt
	notedAt time.Time
	// transfers counts the writes to the workspace by this process, except
	// copies from boxes. placing is held while a copy from a box is put in
	// place.
	transfers struct{ begun, ended int64 }
	placing   sync.Mutex
}

// Bounds of workspaces.
const (
	maxWorkspaces = 1000 // of a principal, unless Options sets another
	maxChanges    = 100  // changes that are named in the result of a run
)

// mount returns a workspace of p for use until release. If make is set, it
// creates a missing workspace.
func (e *Engine) mount(ctx context.Context, p sandbox.Principal, name string, make bool) (*mount, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return nil, err
	}
	if err := request.CheckWorkspaceName(name); err != nil {
		return nil, err
	}
	if e.opts.Workspaces == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "workspace: this server keeps none")
	}
	rec, err := e.useWorkspace(ctx, p, name, make)
	if err != nil {
		return nil, err
	}
	return e.hold(rec, workspace.ID(rec.ID))
}

// hold returns the mount of an existing workspace.
func (e *Engine) hold(rec store.Workspace, id workspace.ID) (*mount, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, request.Closed()
	}
	if m := e.mounts[id]; m != nil {
		m.users++
		return m, nil
	}
	ws, err := e.opts.Workspaces.Open(id)
	if err != nil {
		return nil, err
	}
	m := &mount{e: e, rec: rec, id: id, ws: ws, users: 1, awake: map[*box]bool{}, boxes: map[*box]bool{}, runs: map[*run]bool{}}
	e.mounts[id] = m
	return m, nil
}

// release ends a use of the workspace.
func (m *mount) release() {
	if m == nil {
		return
	}
	m.e.mu.Lock()
	m.users--
	last := m.users == 0
	if last {
		delete(m.e.mounts, m.id)
	}
	m.e.mu.Unlock()
	m.mu.Lock()
	usage := m.holds.counted
	changed := m.holds.known && usage != m.noted
	m.mu.Unlock()
	if changed {
		m.note(&usage)
	} else {
		m.note(nil)
	}
	if last {
		if err := m.ws.Close(); err != nil {
			m.e.log.Error("close workspace", "error", err)
		}
	}
}

// note records that the workspace was used, and its usage unless usage is nil.
func (m *mount) note(usage *sandbox.WorkspaceUsage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.e.ctx), cleanupTimeout)
	defer cancel()
	if err := m.e.store.TouchWorkspace(ctx, m.rec.ID, m.e.now(), usage); err != nil {
		m.e.log.Error("record use of workspace", "error", err)
	}
}

// path returns the path of the workspace for the driver, or "" if the driver
// does not use it.
func (m *mount) path() string {
	if m == nil || m.e.features.WorkspaceCopied {
		return ""
	}
	return m.e.opts.Workspaces.Path(m.id)
}

// transfer records that a write to the workspace begins, which ends when done
// is called.
func (m *mount) transfer() (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transfers.begun++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.transfers.ended++
	}
}

// transferred returns a number. If a transfer was in progress between two
// calls, the second number differs from the first.
func (m *mount) transferred() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.transfers.begun != m.transfers.ended {
		m.transfers.begun++
		m.transfers.ended++
	}
	return m.transfers.begun + m.transfers.ended
}

// changed records that this process itself changed the workspace, so that the
// change is not attributed to a run.
func (m *mount) changed() {
	m.mu.Lock()
	m.touched = time.Now()
	m.mu.Unlock()
}

// A baseline is the state of a workspace when a run began.
type baseline struct {
	before *workspace.Snapshot
	since  time.Time
}

// begin begins a run. Changes are attributed to a run by file time, and the
// file system's clock has a coarse resolution. So begin waits for the next tick
// if this process changed something just before.
func (m *mount) begin(ctx context.Context, r *run) (_ *baseline, err error) {
	if m == nil {
		return nil, nil
	}
	if err := m.enter(ctx, r); err != nil {
		m.leave(r)
		return nil, err
	}
	defer func() {
		if err != nil {
			m.leave(r)
		}
	}()
	m.mu.Lock()
	before, touched := m.last, m.touched
	m.mu.Unlock()
	if before == nil {
		if before, err = m.look(ctx); err != nil {
			return nil, m.tooMuch(err)
		}
	}
	if wait := workspace.Tick - time.Since(touched); !touched.IsZero() && wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &baseline{before: before, since: m.ws.Clock()}, nil
}

// end ends a run. It returns what changed since the run began, and an error of
// kind Exhausted if the workspace is over its quota.
func (m *mount) end(ctx context.Context, r *run, b *baseline) (*sandbox.Changes, error) {
	if m == nil || b == nil {
		return nil, nil
	}
	defer m.leave(r)
	after, err := m.look(ctx)
	if err != nil {
		return nil, m.tooMuch(err)
	}
	c := workspace.Changes(b.before, after, b.since, maxChanges)
	m.note(&after.Usage)
	err = m.overQuota(ctx, after.Usage, b.before.Usage)
	if err != nil {
		// This run gets the error. The watcher must not end the next run for
		// the same usage.
		m.mu.Lock()
		m.blamed = &after.Usage
		m.mu.Unlock()
	}
	return &c, err
}

// inWorkspace returns the name in the workspace of a path in a sandbox. ok is
// false if the path is elsewhere. It compares paths only, and resolves no
// symbolic links.
func inWorkspace(p string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path.Clean(request.Absolute(p)), sandbox.WorkDir+"/")
	return name, ok && name != ""
}

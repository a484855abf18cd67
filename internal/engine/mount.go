package engine

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A mount is a workspace that something in this process has: sandboxes, or a
// transfer. It keeps the quota while a sandbox that has it is awake.
type mount struct {
	e   *Engine
	rec store.Workspace // never changed
	id  workspace.ID    // likewise
	ws  workspace.Opened

	users int // guarded by e.mu

	// watch is what is known from watching; only who watches uses it.
	watch watcher

	mu      sync.Mutex
	last    *workspace.Snapshot // nil until it is needed
	holds   holding
	touched time.Time // when this process itself last changed something
	// awake are the sandboxes that may write to it, and runs those that go on
	// in them. While awake has one, stop ends who watches, and watched is
	// closed when that has ended.
	awake   map[*box]bool
	boxes   map[*box]bool // that were awake and are not gone
	runs    map[*run]bool
	stop    context.CancelFunc
	watched chan struct{}
	// gate is closed when runs may begin again, nil while they may.
	gate chan struct{}
	// blamed is what a run left there that ended as it was too much; nil once the
	// watcher knows.
	blamed  *sandbox.WorkspaceUsage
	noted   sandbox.WorkspaceUsage // in the store, at notedAt
	notedAt time.Time
	// transfers counts those to the workspace that are not copies of
	// boxes', and placing is held while such a copy is put in place.
	transfers struct{ begun, ended int64 }
	placing   sync.Mutex
}

// Bounds of workspaces.
const (
	maxWorkspaceName = 128
	maxWorkspaces    = 1000 // of a principal, unless Options says otherwise
	maxChanges       = 100  // that are named of a run
)

// checkWorkspaceName checks a name that a principal gives a workspace.
func checkWorkspaceName(name string) error {
	if name == "" || len(name) > maxWorkspaceName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return sandbox.WithHint(invalid("workspace: %s is not a name of a workspace", shorten(name)),
			"use up to %d bytes of UTF-8 without control characters", maxWorkspaceName)
	}
	return nil
}

// noWorkspace is the error for a workspace that does not exist for the caller.
func noWorkspace(name string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "workspace: there is no workspace %s", shorten(name)),
		"list the workspaces to see those that there are, or make a sandbox with it")
}

// mount returns a workspace of p's for use until release, and makes it if it
// is not there and make is set.
func (e *Engine) mount(ctx context.Context, p sandbox.Principal, name string, make bool) (*mount, error) {
	if err := checkPrincipal(p); err != nil {
		return nil, err
	}
	if err := checkWorkspaceName(name); err != nil {
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

// hold returns the mount of a workspace that is there.
func (e *Engine) hold(rec store.Workspace, id workspace.ID) (*mount, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed()
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

// note records that the workspace was used, and what it holds if that is known.
func (m *mount) note(usage *sandbox.WorkspaceUsage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.e.ctx), cleanupTimeout)
	defer cancel()
	if err := m.e.store.TouchWorkspace(ctx, m.rec.ID, m.e.now(), usage); err != nil {
		m.e.log.Error("record use of workspace", "error", err)
	}
}

// path returns where the driver finds the workspace, "" if it has no use for it.
func (m *mount) path() string {
	if m == nil || m.e.features.WorkspaceCopied {
		return ""
	}
	return m.e.opts.Workspaces.Path(m.id)
}

// transfer begins to write to the workspace, until done is called.
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

// transferred returns a number that is another later if a transfer went on
// meanwhile.
func (m *mount) transferred() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.transfers.begun != m.transfers.ended {
		m.transfers.begun++
		m.transfers.ended++
	}
	return m.transfers.begun + m.transfers.ended
}

// changed notes that this process itself changed something: what a run finds
// there is not that run's doing.
func (m *mount) changed() {
	m.mu.Lock()
	m.touched = time.Now()
	m.mu.Unlock()
}

// A baseline is how a workspace was when a run began.
type baseline struct {
	before *workspace.Snapshot
	since  time.Time
}

// begin begins a run. What happened before can be told from what it does only
// as exactly as the file system's clock goes, so it waits for that to go on if
// something just happened.
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

// end ends a run, and says what changed since it began and whether there is
// more now than there may be.
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
		// This run is told, and the watcher must not end the next for it.
		m.mu.Lock()
		m.blamed = &after.Usage
		m.mu.Unlock()
	}
	return &c, err
}

// inWorkspace returns the name in the workspace of a path in a sandbox. ok is
// false if it is elsewhere, as far as can be told without looking.
func inWorkspace(p string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path.Clean(absolute(p)), sandbox.WorkDir+"/")
	return name, ok && name != ""
}

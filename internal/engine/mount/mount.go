package mount

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A Set has the workspaces that this process uses.
type Set struct {
	opts Options
	ctx  context.Context //nolint:containedctx // the life of the set, not of a caller

	mu        sync.Mutex
	mounts    map[workspace.ID]*Mount
	importing map[sandbox.Principal]chan struct{} // closed at the end of the principal's import
}

// NewSet returns a set whose waiting calls end with ctx.
func NewSet(ctx context.Context, opts Options) *Set {
	opts.EndTimeout = cmp.Or(opts.EndTimeout, EndTimeout)
	return &Set{opts: opts, ctx: ctx, mounts: map[workspace.ID]*Mount{}, importing: map[sandbox.Principal]chan struct{}{}}
}

// A Mount is an open workspace of this process, used by sandboxes or by a
// transfer. Its watcher enforces the quota while a sandbox with the workspace
// is awake.
type Mount struct {
	set *Set
	rec store.Workspace // never changed
	id  workspace.ID    // never changed
	ws  workspace.Opened

	users int // guarded by the set's mu

	// watch is the state of watching. Only the watcher's goroutine uses it.
	watch watcher

	mu      sync.Mutex
	last    *workspace.Snapshot // nil until it is needed
	holds   holding
	touched time.Time // when this process itself last changed a file
	// awake are the sandboxes that may write to it. runs are the runs in
	// progress in them. While awake has a sandbox, stop ends the watcher;
	// watched is closed when the watcher has ended.
	awake   map[Sandbox]bool
	boxes   map[Sandbox]bool   // that were awake and are not gone yet
	copies  map[Sandbox]func() // copy soon
	runs    map[Run]bool
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

// A holding is the usage of a workspace. The mu of its mount guards it.
type holding struct {
	counted sandbox.WorkspaceUsage
	known   bool                   // counted is set
	unnamed sandbox.WorkspaceUsage // of unlinked files that programs still have open
	landed  int64                  // bytes uploaded since the last count, and in the workspace
	flying  int64                  // bytes of uploads that are not in the workspace yet
	uploads int                    // in progress
	begun   int64                  // uploads and runs so far
	// again is the earliest time at which a request that does not fit may have
	// the workspace counted again.
	again time.Time
}

// A watcher is the state of watching a workspace.
type watcher struct {
	m    *Mount
	used int64 // bytes used of the disk at the last count
	room int64 // bytes by which the workspace could grow then
	// From soonest on, the workspace is counted again if the disk has filled by
	// room. From latest on, it is counted in any case.
	soonest, latest time.Time
	// accepted is the usage when the workspace was last in order. That much is
	// allowed whatever the quota is, so that the workspace can be cleaned up.
	accepted sandbox.WorkspaceUsage
	known    bool // accepted is set
	// calm is the result of activity when the workspace was last in order and
	// nothing known to this process wrote to it. It is -1 if something did.
	calm int64

	full  error     // why runs are being ended; nil if they are not
	until time.Time // when the runs must have ended, or, if settles is set, when settling ends
	// settles means that the runs have ended, or that their time is over.
	// transfers is the result of transferred then.
	settles   bool
	transfers int64
}

// noteTimeout bounds the recording of a use.
const noteTimeout = 10 * time.Second

// Release ends a use of the workspace.
func (m *Mount) Release() {
	if m == nil {
		return
	}
	m.set.mu.Lock()
	m.users--
	last := m.users == 0
	if last {
		delete(m.set.mounts, m.id)
	}
	m.set.mu.Unlock()
	if !m.noteUse() {
		m.note(nil)
	}
	if last {
		if err := m.ws.Close(); err != nil {
			m.set.opts.Log.Error("close workspace", "error", err)
		}
	}
}

// noteUse records the usage of the workspace, and reports true, if this process counted
// another than the recorded one.
func (m *Mount) noteUse() bool {
	m.mu.Lock()
	usage := m.holds.counted
	changed := m.holds.known && usage != m.noted
	if changed {
		m.noted, m.notedAt = usage, time.Now()
	}
	m.mu.Unlock()
	if changed {
		m.note(&usage)
	}
	return changed
}

// note records that the workspace was used, and its usage unless usage is nil.
func (m *Mount) note(usage *sandbox.WorkspaceUsage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.set.ctx), noteTimeout)
	defer cancel()
	if err := m.set.opts.Records.TouchWorkspace(ctx, m.rec.ID, m.set.opts.Now(), usage); err != nil {
		m.set.opts.Log.Error("record use of workspace", "error", err)
	}
}

// Path returns the path of the workspace for the driver, or "" if the driver
// does not use it.
func (m *Mount) Path() string {
	if m == nil || m.set.opts.Copied {
		return ""
	}
	return m.set.opts.Keeper.Path(m.id)
}

// transfer records that a write to the workspace begins, which ends when done
// is called.
func (m *Mount) transfer() (done func()) {
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
func (m *Mount) transferred() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.transfers.begun != m.transfers.ended {
		m.transfers.begun++
		m.transfers.ended++
	}
	return m.transfers.begun + m.transfers.ended
}

// Changed records that this process itself changed the workspace, so that the
// change is not attributed to a run.
func (m *Mount) Changed() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.touched = time.Now()
	m.mu.Unlock()
}

// ID returns the ID of the workspace.
func (m *Mount) ID() string { return m.rec.ID }

// Record returns the record of the workspace when it was mounted.
func (m *Mount) Record() store.Workspace { return m.rec }

// tellCopies makes all sandboxes with a copy, except but, copy the new changes.
func (m *Mount) tellCopies(but Sandbox) {
	m.mu.Lock()
	var copies []func()
	for b, soon := range m.copies {
		if b != but {
			copies = append(copies, soon)
		}
	}
	m.mu.Unlock()
	for _, soon := range copies {
		soon()
	}
}

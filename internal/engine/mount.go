package engine

import (
	"context"
	"errors"
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
// transfer. It keeps the quota while something may write.
type mount struct {
	e   *Engine
	rec store.Workspace // never changed
	id  workspace.ID    // likewise
	ws  workspace.Opened

	users int // guarded by e.mu

	mu      sync.Mutex
	last    *workspace.Snapshot // nil until it is needed
	written int64               // bytes of transfers since last
	touched time.Time           // when this process itself last changed something
	begun   sandbox.WorkspaceUsage
	writers int // runs that go on
	// transfers counts those to the workspace that are not copies of
	// boxes', and placing is held while such a copy is put in place.
	transfers struct{ begun, ended int64 }
	placing   sync.Mutex
	stop      func()
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
	m := &mount{e: e, rec: rec, id: id, ws: ws, users: 1}
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
	m.note(nil)
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

// look takes a snapshot, which becomes the last.
func (m *mount) look(ctx context.Context) (*workspace.Snapshot, error) {
	s, err := m.ws.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.last, m.written = s, 0
	m.mu.Unlock()
	return s, nil
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
func (m *mount) begin(ctx context.Context) (*baseline, error) {
	if m == nil {
		return nil, nil
	}
	m.mu.Lock()
	before, touched := m.last, m.touched
	m.mu.Unlock()
	if before == nil {
		var err error
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
	since := m.ws.Clock()
	m.enter(before.Usage)
	return &baseline{before: before, since: since}, nil
}

// enter counts in a run that found so much in the workspace. It is counted out
// by leave.
func (m *mount) enter(begun sandbox.WorkspaceUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writers++; m.writers == 1 {
		m.begun = begun
		m.watch()
	}
}

// end ends a run, and says what changed since it began and whether there is
// more now than there may be.
func (m *mount) end(ctx context.Context, b *baseline) (*sandbox.Changes, error) {
	if m == nil || b == nil {
		return nil, nil
	}
	defer m.leave()
	after, err := m.look(ctx)
	if err != nil {
		return nil, m.tooMuch(err)
	}
	c := workspace.Changes(b.before, after, b.since, maxChanges)
	m.note(&after.Usage)
	return &c, m.overQuota(ctx, after.Usage, b.before.Usage)
}

// leave counts a run out.
func (m *mount) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writers--; m.writers == 0 {
		m.stop()
	}
}

// tooMuch tells that a workspace cannot even be counted.
func (m *mount) tooMuch(err error) error {
	if !errors.Is(err, sandbox.Exhausted) {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "workspace %s: %w", shorten(m.rec.Name), err),
		"delete the workspace, or export it where it can be cleaned up")
}

// overQuota reports whether usage is more than there may be, and more than it
// was: whoever is over it already can still clean up. The error is of kind
// Exhausted.
func (m *mount) overQuota(ctx context.Context, usage, was sandbox.WorkspaceUsage) error {
	if usage.Bytes <= was.Bytes && usage.Files <= was.Files {
		return nil
	}
	if q := m.e.opts.WorkspaceQuota; usage.Exceeds(q) {
		return exceeded("the workspace", usage, q)
	}
	q := m.e.opts.PrincipalQuota
	if q == (sandbox.WorkspaceUsage{}) {
		return nil
	}
	others, err := m.e.store.OtherWorkspaces(ctx, m.rec.Principal, m.rec.ID)
	if err != nil {
		m.e.log.Error("read workspaces", "error", err)
		return nil
	}
	sum := sandbox.WorkspaceUsage{Bytes: usage.Bytes + others.Bytes, Files: usage.Files + others.Files}
	if sum.Exceeds(q) {
		return exceeded("the workspaces of this principal together", sum, q)
	}
	return nil
}

func exceeded(what string, usage, quota sandbox.WorkspaceUsage) error {
	if quota.Bytes > 0 && usage.Bytes > quota.Bytes {
		return sandbox.Errorf(sandbox.Exhausted, "%s may hold %s", what, sandbox.FormatBytes(quota.Bytes))
	}
	return sandbox.Errorf(sandbox.Exhausted, "%s may hold %d files", what, quota.Files)
}

// left returns how many bytes more the workspace may hold, at most most.
func (m *mount) left(ctx context.Context, most int64) (int64, error) {
	m.mu.Lock()
	last, written := m.last, m.written
	m.mu.Unlock()
	if last == nil {
		var err error
		if last, err = m.look(ctx); err != nil {
			return 0, m.tooMuch(err)
		}
	}
	if q := m.e.opts.WorkspaceQuota; q != (sandbox.WorkspaceUsage{}) {
		if q.Files > 0 && last.Usage.Files >= q.Files {
			return 0, exceeded("the workspace", last.Usage, q)
		}
		if q.Bytes > 0 {
			most = min(most, q.Bytes-last.Usage.Bytes-written)
		}
	}
	if q := m.e.opts.PrincipalQuota; q.Bytes > 0 {
		others, err := m.e.store.OtherWorkspaces(ctx, m.rec.Principal, m.rec.ID)
		if err != nil {
			return 0, err
		}
		most = min(most, q.Bytes-last.Usage.Bytes-written-others.Bytes)
	}
	return max(most, 0), nil
}

// Watching: how often the disk is looked at, and how much of the time may go
// into counting a workspace.
const (
	watchEvery = 10 * time.Millisecond
	watchShare = 20
	watchLeast = 500 * time.Millisecond
)

// watch begins to look after the quota while runs go on, until m.stop is
// called. m.mu is held.
//
// Counting all files takes milliseconds for each thousand, so it is done when
// the disk as a whole has filled by as much as the workspace may still grow,
// which takes a microsecond to see, and from time to time besides: others may
// free what this one takes. What can be written beyond the quota is therefore
// what a program writes in the time between two looks, and in that which its
// end takes.
func (m *mount) watch() {
	ctx, cancel := context.WithCancel(m.e.ctx)
	m.stop = cancel
	if m.e.features.WorkspaceCopied {
		return // what runs write is elsewhere, and looked at when it is copied
	}
	if m.e.opts.WorkspaceQuota == (sandbox.WorkspaceUsage{}) && m.e.opts.PrincipalQuota == (sandbox.WorkspaceUsage{}) {
		return
	}
	m.e.work(func() { m.keepQuota(ctx) })
}

func (m *mount) keepQuota(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	used, _ := m.ws.DiskUsed()
	left, err := m.left(ctx, 1<<62)
	if err != nil {
		left = 0
	}
	for next := time.Now().Add(watchLeast); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now, ok := m.ws.DiskUsed()
		if (!ok || now-used <= left) && time.Now().Before(next) {
			continue
		}
		began := time.Now()
		usage, err := m.ws.Measure(ctx)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		begun := m.begun
		m.mu.Unlock()
		if err == nil {
			err = m.overQuota(ctx, usage, begun)
		}
		if err != nil {
			m.e.endRuns(m, m.tooMuch(err))
			return
		}
		used, left = now, m.room(usage)
		next = time.Now().Add(max(watchLeast, watchShare*time.Since(began)))
	}
}

// room is how many bytes the workspace may grow by as far as its own quota
// goes, or that of all of the principal's if nothing else grows.
func (m *mount) room(usage sandbox.WorkspaceUsage) int64 {
	room := int64(1 << 62)
	for _, q := range []sandbox.WorkspaceUsage{m.e.opts.WorkspaceQuota, m.e.opts.PrincipalQuota} {
		if q.Bytes > 0 {
			room = min(room, max(q.Bytes-usage.Bytes, 0))
		}
	}
	return room
}

// endRuns ends the runs of all sandboxes that have the workspace: nothing tells
// which of them filled it.
func (e *Engine) endRuns(m *mount, why error) {
	e.mu.Lock()
	var boxes []*box
	for _, b := range e.boxes {
		if b.started() && b.mount == m {
			boxes = append(boxes, b)
		}
	}
	e.mu.Unlock()
	for _, b := range boxes {
		b.mu.Lock()
		for _, r := range b.runs {
			e.work(func() { r.kill(fateDiskFull, why) })
		}
		b.mu.Unlock()
	}
}

// inWorkspace returns the name in the workspace of a path in a sandbox. ok is
// false if it is elsewhere, as far as can be told without looking.
func inWorkspace(p string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path.Clean(absolute(p)), sandbox.WorkDir+"/")
	return name, ok && name != ""
}

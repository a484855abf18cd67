package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// The quota of a workspace, and its usage as far as this process knows.

// workspaceSlack and filesSlack bound how far a workspace may exceed its quota
// before new runs that could add to it are refused. The bound is the slack in
// bytes or in files, or the quota once more if that is larger. A run is ended
// when it passes the quota, but its files stay. Without the bound, each run
// could add what it writes before the watcher sees it.
const (
	workspaceSlack = 256 << 20
	filesSlack     = 10_000
)

// Counting takes 1/watchShare of the time at most. The time between two counts is
// watchLeast at least.
const (
	watchShare = 20
	watchLeast = 500 * time.Millisecond
)

// beyond returns the usage above which nothing may add to a workspace with
// quota q.
func beyond(q sandbox.WorkspaceUsage) sandbox.WorkspaceUsage {
	if q.Bytes > 0 {
		q.Bytes += max(q.Bytes, workspaceSlack)
	}
	if q.Files > 0 {
		q.Files += max(q.Files, filesSlack)
	}
	return q
}

// landing returns the value to pass to count at the end of a count that begins
// now.
func (m *Mount) landing() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds.landed
}

// count records the usage that a count found, in files with a name and in
// unlinked files. landed is the result of landing when the count began.
func (m *Mount) count(named, unnamed sandbox.WorkspaceUsage, landed int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds.counted, m.holds.known = named, true
	m.holds.unnamed = unnamed
	if len(m.boxes) == 0 {
		m.holds.unnamed = sandbox.WorkspaceUsage{} // they went with the last box
	}
	m.holds.landed = max(0, m.holds.landed-landed)
}

// held returns the usage of the workspace, with uploads in progress. known is
// false if this process did not count yet.
func (m *Mount) held() (_ sandbox.WorkspaceUsage, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := add(m.holds.counted, m.holds.unnamed)
	u.Bytes += m.holds.landed + m.holds.flying
	return u, m.holds.known
}

// measure counts the usage of the workspace. Unlinked files come first: a file
// that is unlinked meanwhile may be missed until the next count, but it is
// never counted twice.
func (m *Mount) measure(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	landed, began := m.landing(), time.Now()
	unnamed := m.unnamed(ctx)
	usage, err := m.ws.Measure(ctx)
	if err == nil {
		m.count(usage, unnamed, landed)
		usage = add(usage, unnamed)
	}
	m.mu.Lock()
	m.holds.again = time.Now().Add(max(watchLeast, (watchShare-1)*time.Since(began)))
	m.mu.Unlock()
	return usage, err
}

// measureAgain counts for a request that does not fit, unless a count just
// ended. The count may be old: no watcher runs while all sandboxes rest, and
// files may have been removed.
func (m *Mount) measureAgain(ctx context.Context) (bool, error) {
	m.mu.Lock()
	early := time.Now().Before(m.holds.again)
	m.mu.Unlock()
	if early {
		return false, nil
	}
	_, err := m.measure(ctx)
	return err == nil, m.tooMuch(err)
}

// look takes a snapshot and remembers it as the last one.
func (m *Mount) look(ctx context.Context) (*workspace.Snapshot, error) {
	landed := m.landing()
	unnamed := m.unnamed(ctx)
	s, err := m.ws.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	m.count(s.Usage, unnamed, landed)
	s.Usage = add(s.Usage, unnamed)
	m.mu.Lock()
	m.last = s
	m.mu.Unlock()
	return s, nil
}

// others returns the usage of the principal's other workspaces. It is current
// for workspaces that this process has mounted and counted, and the last
// recorded usage for the rest.
func (m *Mount) others(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	var mounted []*Mount
	m.set.mu.Lock()
	for _, o := range m.set.mounts {
		if o != m && o.rec.Principal == m.rec.Principal {
			mounted = append(mounted, o)
		}
	}
	m.set.mu.Unlock()
	var sum sandbox.WorkspaceUsage
	here := []string{m.rec.ID}
	for _, o := range mounted {
		if u, known := o.held(); known {
			sum.Bytes += u.Bytes
			sum.Files += u.Files
			here = append(here, o.rec.ID)
		}
	}
	rest, err := m.set.opts.Records.OtherWorkspaces(ctx, m.rec.Principal, here)
	sum.Bytes += rest.Bytes
	sum.Files += rest.Files
	return sum, err
}

// exceeds returns an error of kind Exhausted if usage is more than own, or
// together with the principal's other workspaces more than all. A zero all
// means no limit.
func (m *Mount) exceeds(ctx context.Context, usage, own, all sandbox.WorkspaceUsage) error {
	if usage.Exceeds(own) {
		return exceeded("the workspace", usage, own)
	}
	if all == (sandbox.WorkspaceUsage{}) {
		return nil
	}
	others, err := m.others(ctx)
	if err != nil {
		m.set.opts.Log.Error("read workspaces", "error", err)
		return nil
	}
	sum := sandbox.WorkspaceUsage{Bytes: usage.Bytes + others.Bytes, Files: usage.Files + others.Files}
	if sum.Exceeds(all) {
		return exceeded("the workspaces of this principal together", sum, all)
	}
	return nil
}

// overQuota returns an error of kind Exhausted if usage exceeds a quota and
// also exceeds was. A workspace that is over its quota can therefore still be
// cleaned up.
func (m *Mount) overQuota(ctx context.Context, usage, was sandbox.WorkspaceUsage) error {
	if usage.Bytes <= was.Bytes && usage.Files <= was.Files {
		return nil
	}
	return m.exceeds(ctx, usage, m.set.opts.Quota, m.set.opts.PrincipalQuota)
}

func exceeded(what string, usage, quota sandbox.WorkspaceUsage) error {
	if quota.Bytes > 0 && usage.Bytes > quota.Bytes {
		return sandbox.Errorf(sandbox.Exhausted, "%s may hold %s", what, sandbox.FormatBytes(quota.Bytes))
	}
	return sandbox.Errorf(sandbox.Exhausted, "%s may hold %d files", what, quota.Files)
}

// tooMuch adds a hint to err if the workspace is too large to be counted.
func (m *Mount) tooMuch(err error) error {
	if !errors.Is(err, sandbox.Exhausted) {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "workspace %s: %w", excerpt.Quote(m.rec.Name), err),
		"delete the workspace, or export it where it can be cleaned up")
}

// left returns how much more the workspace may hold. Its files are one or more.
func (m *Mount) left(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	left, err := m.spare(ctx)
	left.Bytes = max(left.Bytes, 0)
	return left, err
}

// spare is like left, but its bytes are negative if the workspace holds more than
// it may. If it may have no more files, the error is of kind Exhausted.
func (m *Mount) spare(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	usage, known := m.held()
	if !known {
		if _, err := m.look(ctx); err != nil {
			return sandbox.WorkspaceUsage{}, m.tooMuch(err)
		}
		usage, _ = m.held()
	}
	left := sandbox.WorkspaceUsage{Bytes: 1 << 62, Files: 1 << 62}
	narrow := func(what string, usage, q sandbox.WorkspaceUsage) error {
		if q.Files > 0 {
			if usage.Files >= q.Files {
				return exceeded(what, usage, q)
			}
			left.Files = min(left.Files, q.Files-usage.Files)
		}
		if q.Bytes > 0 {
			left.Bytes = min(left.Bytes, q.Bytes-usage.Bytes)
		}
		return nil
	}
	for _, q := range []sandbox.WorkspaceUsage{m.set.opts.Quota, countable} {
		if err := narrow("the workspace", usage, q); err != nil {
			return sandbox.WorkspaceUsage{}, err
		}
	}
	if q := m.set.opts.PrincipalQuota; q != (sandbox.WorkspaceUsage{}) {
		others, err := m.others(ctx)
		if err == nil {
			err = narrow("the workspaces of this principal together", add(usage, others), q)
		}
		if err != nil {
			return sandbox.WorkspaceUsage{}, err
		}
	}
	return left, nil
}

// leftAgain is left, and an error at a limit of the principal: see mayGrow. Unless fits
// accepts the result, it counts the workspace again, because files may have been removed.
func (m *Mount) leftAgain(ctx context.Context, fits func(sandbox.WorkspaceUsage) bool) (sandbox.WorkspaceUsage, error) {
	if err := m.mayGrow(ctx); err != nil {
		return sandbox.WorkspaceUsage{}, err
	}
	left, err := m.left(ctx)
	if err == nil && fits(left) {
		return left, nil
	}
	again, againErr := m.measureAgain(ctx)
	if againErr != nil {
		return left, againErr
	}
	if again {
		return m.left(ctx)
	}
	return left, err
}

// countable is what a workspace may hold whatever its quota is.
var countable = sandbox.WorkspaceUsage{Files: workspace.MaxFiles}

// tally counts the workspace after added came into it, and records its usage. If
// the count fails, it records an estimate, so that the next request cannot add
// files as if nothing had come. A workspace with too many files to be counted is
// recorded as full until a count succeeds.
func (m *Mount) tally(ctx context.Context, added sandbox.WorkspaceUsage) error {
	s, err := m.look(ctx)
	if err == nil {
		m.note(&s.Usage)
		return nil
	}
	m.mu.Lock()
	m.holds.counted = add(m.holds.counted, added)
	if errors.Is(err, sandbox.Exhausted) {
		m.holds.counted.Files = max(m.holds.counted.Files, countable.Files+1)
	}
	usage := add(m.holds.counted, m.holds.unnamed)
	m.mu.Unlock()
	m.note(&usage)
	return m.tooMuch(err)
}

func errFull(m *Mount) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "workspace: %s has no room for it: it may hold %s",
		excerpt.Quote(m.rec.Name), sandbox.FormatBytes(m.set.opts.Quota.Bytes)), "remove files that are not needed")
}

// Admit waits while the watcher ends runs of a full workspace, and refuses a
// caller if the workspace is far beyond its quota. Unless begin is nil, Admit
// calls it with m.mu held once the wait is over.
func (m *Mount) Admit(ctx context.Context, begin func()) error {
	for {
		m.mu.Lock()
		gate := m.gate
		if gate == nil && begin != nil {
			begin()
		}
		m.mu.Unlock()
		if gate == nil {
			break
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.set.ctx.Done():
			return request.Closed()
		}
	}
	usage, known := m.held()
	if !known {
		if _, err := m.look(ctx); err != nil {
			return m.tooMuch(err)
		}
		usage, _ = m.held()
	}
	if m.farBeyond(ctx, usage) == nil {
		return m.mayGrow(ctx)
	}
	if again, err := m.measureAgain(ctx); err != nil {
		return err
	} else if again {
		if usage, _ = m.held(); m.farBeyond(ctx, usage) == nil {
			return m.mayGrow(ctx)
		}
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "workspace: %s holds %s in %d files, far more than it may (%s)",
		excerpt.Quote(m.rec.Name), sandbox.FormatBytes(usage.Bytes), usage.Files, sandbox.FormatBytes(m.set.opts.Quota.Bytes)),
		"remove files by the file operations, or delete workspaces")
}

// mayGrow returns an error of kind Exhausted if a limit of the principal, or of its
// groups, allows nothing more in its workspaces. Before it refuses, it counts the
// workspace again, because files may have been removed.
func (m *Mount) mayGrow(ctx context.Context) error {
	m.noteUse()
	err := m.set.opts.CheckGrow(ctx, m.rec.Principal)
	if !errors.Is(err, sandbox.Exhausted) {
		return err
	}
	if again, againErr := m.measureAgain(ctx); againErr != nil || !again {
		return errors.Join(err, againErr)
	}
	m.noteUse()
	return m.set.opts.CheckGrow(ctx, m.rec.Principal)
}

// farBeyond returns an error if usage is so far beyond a quota that nothing may
// add to the workspace.
func (m *Mount) farBeyond(ctx context.Context, usage sandbox.WorkspaceUsage) error {
	if usage.Exceeds(countable) {
		return exceeded("the workspace", usage, countable)
	}
	return m.exceeds(ctx, usage, beyond(m.set.opts.Quota), beyond(m.set.opts.PrincipalQuota))
}

// A Reader counts the bytes that it reads as usage of the workspace, and
// fails when there are too many. The caller that made it calls Done.
type Reader struct {
	m      *Mount
	ctx    context.Context
	r      io.Reader
	staged bool  // the data is not in the workspace before the end
	left   int64 // bytes to read before the next check of the quota

	// Guarded by m.mu.
	taken int64
	err   error // the error that ended the reading
}

// lookAgain is how many bytes are read before the quota is checked again: other
// uploads may use it, too.
const lookAgain = 1 << 20

// Bounded returns a reader of r that keeps the workspace within its quota. size
// is the number of bytes, or -1 if that is unknown. staged means that the data
// reaches the workspace only when all of it is there. The caller must call
// Done.
func (m *Mount) Bounded(ctx context.Context, r io.Reader, size int64, staged bool) (*Reader, error) {
	fits := func(left sandbox.WorkspaceUsage) bool {
		return size <= left.Bytes && (left.Bytes > 0 || size == 0)
	}
	left, err := m.leftAgain(ctx, fits)
	if err != nil {
		return nil, err
	}
	if !fits(left) {
		return nil, errFull(m)
	}
	m.mu.Lock()
	m.holds.uploads++
	m.holds.begun++
	m.mu.Unlock()
	return &Reader{m: m, ctx: ctx, r: r, staged: staged, left: min(left.Bytes, lookAgain)}, nil
}

// Read implements [io.Reader].
func (q *Reader) Read(p []byte) (int, error) {
	if err := q.Full(); err != nil {
		return 0, err
	}
	n, err := q.r.Read(p)
	m := q.m
	m.mu.Lock()
	if q.staged {
		m.holds.flying += int64(n)
	} else {
		m.holds.landed += int64(n)
	}
	q.taken += int64(n)
	ending := m.gate != nil
	m.mu.Unlock()
	q.left -= int64(n)
	if q.left > 0 && !ending {
		return n, err
	}
	spare, spareErr := m.spare(q.ctx)
	q.left = min(spare.Bytes, lookAgain)
	if spareErr == nil && spare.Bytes < 0 {
		spareErr = errFull(m)
	}
	if spareErr != nil {
		m.mu.Lock()
		q.err = spareErr
		m.mu.Unlock()
		return n, spareErr
	}
	return n, err
}

// Full returns the error with which the reader ended because there was too
// much.
func (q *Reader) Full() error {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	return q.err
}

// Done ends the reading. Staged data is in the workspace by now and was counted
// there, or it is gone.
func (q *Reader) Done() {
	q.m.mu.Lock()
	defer q.m.mu.Unlock()
	q.m.holds.uploads--
	if q.staged {
		q.m.holds.flying -= q.taken
	}
}

// stopFull returns the reason for stopping a sandbox because its workspace is
// full.
func stopFull(why error, more string) verdict.Reason {
	return verdict.Reason{
		Cause: fmt.Sprintf("%v, and %s", why, more),
		Code:  sandbox.DiskFull,
		Next:  verdict.NextWorkspace,
	}
}

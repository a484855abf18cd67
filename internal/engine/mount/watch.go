package mount

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The watcher looks at the disk every watchEvery. It spends 1/watchFullShare of
// the time at most on counting while the disk fills by more than the workspace
// may grow.
const (
	watchEvery     = 10 * time.Millisecond
	watchFullShare = 4
	// watchGrain is the least growth of the disk, in bytes, that makes the
	// watcher count early.
	watchGrain = 1 << 20
	// The runs of a full workspace have Options.EndWait to end. For settleFor
	// after that, the watcher checks whether the workspace still grows.
	settleFor = 250 * time.Millisecond
)

// Wakes records that a sandbox may write to the workspace. A watcher runs while
// there is such a sandbox.
//
// Counting all files takes milliseconds per thousand, and looking at the disk
// as a whole takes a microsecond. So the watcher counts when the disk has
// filled by as much as the workspace may still grow. It also counts from time
// to time, because others may free what this workspace takes. A program can
// exceed the quota only by what it writes between two looks and until it has
// been killed.
func (m *Mount) Wakes(b Sandbox) {
	if m == nil || m.set.opts.Copied {
		return // data is written elsewhere, and checked when it is copied
	}
	if m.set.opts.Quota == (sandbox.WorkspaceUsage{}) && m.set.opts.PrincipalQuota == (sandbox.WorkspaceUsage{}) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awake[b], m.boxes[b] = true, true
	if m.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.set.ctx)
	before, over := m.watched, make(chan struct{})
	begun := m.set.opts.Work(func() {
		defer close(over)
		if before != nil {
			<-before // the previous watcher leaves its state in m.watch
		}
		m.keepQuota(ctx)
	})
	if !begun {
		cancel()
		return
	}
	m.stop, m.watched = cancel, over
}

// Rests records that a sandbox can no longer write: it is paused, or gone.
func (m *Mount) Rests(b Sandbox) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.awake, b)
	if len(m.awake) == 0 && m.stop != nil {
		m.stop()
		m.stop = nil
	}
}

// Leaves records that a sandbox is gone. The unlinked files go with the last
// one.
func (m *Mount) Leaves(b Sandbox) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, b)
	delete(m.copies, b)
	if len(m.boxes) == 0 {
		m.holds.unnamed = sandbox.WorkspaceUsage{}
	}
}

// wroteAlone is why a sandbox stops whose workspace grew without a run or an
// upload.
const wroteAlone = "a program that is no run went on writing"

// keepQuota watches until ctx ends.
func (m *Mount) keepQuota(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	w := &m.watch
	w.m = m
	defer func() {
		if m.set.ctx.Err() != nil {
			w.open()
		} // else watching continues when a sandbox wakes
	}()
	w.used, _ = m.ws.DiskUsed()
	if usage, known := m.held(); known && w.known {
		w.room = w.roomFor(ctx, usage)
	} else {
		w.count(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.look(ctx)
	}
}

// look checks the disk, and counts the workspace when that is due.
func (w *watcher) look(ctx context.Context) {
	now := time.Now()
	used, ok := w.m.ws.DiskUsed()
	grown := ok && used-w.used > max(w.room, watchGrain)
	switch {
	case w.full != nil && w.settles:
		if over := !now.Before(w.until); over || ok && used-w.used > watchGrain {
			w.used = used
			w.settle(ctx, over)
		}
	case w.full != nil && !w.settles && (w.m.quiet() || now.After(w.until)):
		// The workspace must not grow from its present usage.
		w.used = used
		usage, ok := w.count(ctx)
		switch {
		case w.full == nil:
		case ok:
			w.accepted = usage
			w.settles, w.until, w.transfers = true, time.Now().Add(settleFor), w.m.transferred()
		case ctx.Err() == nil:
			// The runs have ended, and the count failed again. Do not keep requests
			// waiting: the next count ends their runs if it fails, too.
			w.open()
		}
	case grown && now.After(w.soonest), now.After(w.latest):
		w.used = used
		w.count(ctx)
	}
}

// count counts the workspace and acts on its usage. ok is false if the count
// failed.
func (w *watcher) count(ctx context.Context) (_ sandbox.WorkspaceUsage, ok bool) {
	m, began := w.m, time.Now()
	before, quiet := m.activity()
	usage, err := m.measure(ctx)
	if ctx.Err() != nil {
		return usage, false
	}
	took := time.Since(began)
	w.latest = time.Now().Add(max(watchLeast, (watchShare-1)*took))
	w.soonest = time.Now().Add(min(watchLeast, (watchFullShare-1)*took))
	if err != nil {
		if errors.Is(err, sandbox.Exhausted) {
			w.stopBoxes(stopFull(m.tooMuch(err), "what is written cannot be counted"), w.accepted)
			return usage, false
		}
		// Files must not be written while they cannot be counted.
		w.end(m.tooMuch(err))
		return usage, false
	}
	if !w.known {
		w.accepted, w.known = usage, true
	}
	m.noteSoon(usage)
	m.mu.Lock()
	if m.blamed != nil && w.full == nil {
		w.accepted = *m.blamed
	}
	m.blamed = nil
	m.mu.Unlock()
	after, _ := m.activity()
	calm := quiet && before == after
	if err := m.overQuota(ctx, usage, w.accepted); err != nil {
		if m.farBeyond(ctx, usage) != nil {
			w.stopBoxes(stopFull(err, "it holds far more"), usage)
		} else if calm && w.calm == before {
			w.stopBoxes(stopFull(err, wroteAlone), usage)
		} else if !w.settles {
			w.end(m.tooMuch(err))
		}
	} else {
		if w.full == nil {
			w.accepted = usage
		}
		if w.calm = -1; calm {
			w.calm = before
		}
	}
	w.room = w.roomFor(ctx, usage)
	return usage, true
}

// end ends the runs, and keeps new ones from beginning until that is over.
func (w *watcher) end(why error) {
	if w.full == nil {
		w.full, w.until, w.settles = why, time.Now().Add(w.m.set.opts.EndWait), false
		w.m.mu.Lock()
		w.m.gate = make(chan struct{})
		w.m.mu.Unlock()
	}
	w.m.endRuns(w.full)
}

// settle checks whether the workspace grew without a run. If it did, some other
// program writes to it, and its sandboxes stop. over means that this is the
// last check.
func (w *watcher) settle(ctx context.Context, over bool) {
	full, accepted := w.full, w.accepted
	usage, ok := w.count(ctx)
	if w.full == nil {
		return
	}
	if !ok {
		if over && ctx.Err() == nil {
			w.open() // as in look, if the count fails again
		}
		return
	}
	if err := w.m.overQuota(ctx, usage, accepted); err != nil && w.m.transferred() == w.transfers {
		w.stopBoxes(stopFull(full, wroteAlone), usage)
		return
	}
	if over {
		w.accepted = usage
		w.open()
	}
}

// stopBoxes stops all sandboxes that may write to the workspace, because the
// watcher cannot know which of them does.
func (w *watcher) stopBoxes(why verdict.Reason, usage sandbox.WorkspaceUsage) {
	m := w.m
	m.mu.Lock()
	boxes := make([]Sandbox, 0, len(m.awake))
	for b := range m.awake {
		boxes = append(boxes, b)
	}
	m.mu.Unlock()
	for _, b := range boxes {
		// stop cancels the creation of a box that is still starting.
		m.set.opts.Work(func() {
			if err := b.Stop(context.WithoutCancel(m.set.ctx), why); err != nil {
				m.set.opts.Log.Error("stop sandbox whose workspace is full", "sandbox", b.ID(), "error", err)
			}
		})
	}
	w.accepted = usage
	w.open()
}

// open lets runs begin again.
func (w *watcher) open() {
	w.full, w.settles = nil, false
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.m.gate != nil {
		close(w.m.gate)
		w.m.gate = nil
	}
}

// roomFor returns how many bytes the workspace may grow by if it holds usage.
func (w *watcher) roomFor(ctx context.Context, usage sandbox.WorkspaceUsage) int64 {
	room := int64(1) << 62
	if q := w.m.set.opts.Quota; q.Bytes > 0 {
		room = min(room, q.Bytes-usage.Bytes)
	}
	if q := w.m.set.opts.PrincipalQuota; q.Bytes > 0 {
		others, err := w.m.others(ctx)
		if err != nil {
			return 0
		}
		room = min(room, q.Bytes-usage.Bytes-others.Bytes)
	}
	return max(room, 0)
}

// quiet reports whether neither a run nor an upload is in progress.
func (m *Mount) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.runs) == 0 && m.holds.uploads == 0
}

// activity returns how many runs, uploads and transfers have begun so far, and
// whether none is in progress.
func (m *Mount) activity() (begun int64, quiet bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds.begun + m.transfers.begun, len(m.runs) == 0 && m.holds.uploads == 0 && m.transfers.begun == m.transfers.ended
}

// endRuns ends the runs of all sandboxes with the workspace, because the
// watcher cannot know which of them filled it. A run that is still beginning is
// left to a later call.
func (m *Mount) endRuns(why error) {
	m.mu.Lock()
	runs := make([]Run, 0, len(m.runs))
	for r := range m.runs {
		runs = append(runs, r)
	}
	m.mu.Unlock()
	for _, r := range runs {
		r.EndFull(why)
	}
}

// noteSoon records the usage of the workspace for other processes, at most once
// a second and only if it has changed.
func (m *Mount) noteSoon(usage sandbox.WorkspaceUsage) {
	m.mu.Lock()
	due := usage != m.noted && time.Since(m.notedAt) >= time.Second
	if due {
		m.noted, m.notedAt = usage, time.Now()
	}
	m.mu.Unlock()
	if due {
		m.note(&usage)
	}
}

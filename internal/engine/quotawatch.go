package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Watching: how often the disk is looked at, and how much of the time may go
// into counting a workspace: a twentieth from time to time, and a quarter while
// the disk fills by more than the workspace may grow.
const (
	watchEvery     = 10 * time.Millisecond
	watchShare     = 20
	watchFullShare = 4
	watchLeast     = 500 * time.Millisecond
	// watchGrain is the least growth of the disk for which a workspace is
	// counted before it is time.
	watchGrain = 1 << 20
	// endWait is how long the runs of a full workspace have to end, and
	// settleFor how long is then looked whether it still grows.
	endWait   = killTimeout + interruptGrace + endTimeout
	settleFor = 250 * time.Millisecond
)

// wakes notes that a sandbox with the workspace may write to it. The quota is
// kept while there is one.
//
// Counting all files takes milliseconds for each thousand, so it is done when
// the disk as a whole has filled by as much as the workspace may still grow,
// which takes a microsecond to see, and from time to time besides: others may
// free what this one takes. What can be written beyond the quota is therefore
// what a program writes in the time between two looks, and in that which its
// end takes.
func (m *mount) wakes(b *box) {
	if m == nil || m.e.features.WorkspaceCopied {
		return // what is written is elsewhere, and looked at when it is copied
	}
	if m.e.opts.WorkspaceQuota == (sandbox.WorkspaceUsage{}) && m.e.opts.PrincipalQuota == (sandbox.WorkspaceUsage{}) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awake[b], m.boxes[b] = true, true
	if m.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.e.ctx)
	before, over := m.watched, make(chan struct{})
	begun := m.e.work(func() {
		defer close(over)
		if before != nil {
			<-before // it has what is known
		}
		m.keepQuota(ctx)
	})
	if !begun {
		cancel()
		return
	}
	m.stop, m.watched = cancel, over
}

// rests notes that a sandbox cannot write any more: it is paused, or gone.
func (m *mount) rests(b *box) {
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

// leaves notes that a sandbox is gone, and with the last one the files without a
// name.
func (m *mount) leaves(b *box) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, b)
	if len(m.boxes) == 0 {
		m.holds.unnamed = sandbox.WorkspaceUsage{}
	}
}

// unmount ends a box's use of its workspace.
func (b *box) unmount() {
	b.mount.rests(b)
	b.mount.leaves(b)
	b.mount.release()
}

// wroteAlone is why a sandbox stops in which neither a run nor an upload wrote.
const wroteAlone = "a program that is no run went on writing"

// A watcher is what is known from looking after a workspace.
type watcher struct {
	m    *mount
	used int64 // of the disk, when the workspace was counted last
	room int64 // by which it could grow then
	// soonest and latest are when it is counted again: if the disk has filled
	// by that, and in any case.
	soonest, latest time.Time
	// accepted is what the workspace held when it was last in order. It may
	// hold that, whatever the quota is: to clean up is possible.
	accepted sandbox.WorkspaceUsage
	known    bool // accepted is set
	// calm is what activity returned when the workspace was last in order and
	// nothing that this process knows of wrote to it; -1 if something did.
	calm int64

	full  error     // why what writes is being ended; nil if it is not
	until time.Time // when that must be over, or is, if settles is set
	// settles says that no run goes on any more, and transfers what the
	// server itself had put there then.
	settles   bool
	transfers int64
}

// keepQuota watches until ctx ends.
func (m *mount) keepQuota(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	w := &m.watch
	w.m = m
	defer func() {
		if m.e.ctx.Err() != nil {
			w.open()
		} // else it goes on when a sandbox wakes
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

// look looks at the disk, and at the workspace if it is time.
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
		// From what there is now it must not grow.
		w.used = used
		if usage, ok := w.count(ctx); ok && w.full != nil {
			w.accepted = usage
			w.settles, w.until, w.transfers = true, time.Now().Add(settleFor), w.m.transferred()
		}
	case grown && now.After(w.soonest), now.After(w.latest):
		w.used = used
		w.count(ctx)
	}
}

// count counts the workspace and acts on what it holds. ok is false if it could
// not be counted.
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
		// Nothing may be written that cannot be counted.
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

// end ends the runs, and keeps others from beginning until that is over.
func (w *watcher) end(why error) {
	if w.full == nil {
		w.full, w.until, w.settles = why, time.Now().Add(endWait), false
		w.m.mu.Lock()
		w.m.gate = make(chan struct{})
		w.m.mu.Unlock()
	}
	w.m.endRuns(w.full)
}

// settle looks whether the workspace grew without a run. Then a program writes to
// it that is none, and its sandbox stops. over says that it is the last look.
func (w *watcher) settle(ctx context.Context, over bool) {
	full, accepted := w.full, w.accepted
	usage, ok := w.count(ctx)
	if !ok || w.full == nil {
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

// stopBoxes stops all sandboxes that may write to the workspace: nothing tells
// which of them does.
func (w *watcher) stopBoxes(why reason, usage sandbox.WorkspaceUsage) {
	m := w.m
	m.mu.Lock()
	boxes := make([]*box, 0, len(m.awake))
	for b := range m.awake {
		boxes = append(boxes, b)
	}
	m.mu.Unlock()
	for _, b := range boxes {
		// One that is being made ends its creation, and is stopped then.
		m.e.work(func() {
			if err := b.stop(context.WithoutCancel(m.e.ctx), why); err != nil {
				m.e.log.Error("stop sandbox whose workspace is full", "sandbox", b.id, "error", err)
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

// roomFor is how many bytes the workspace may grow by that holds usage.
func (w *watcher) roomFor(ctx context.Context, usage sandbox.WorkspaceUsage) int64 {
	room := int64(1) << 62
	if q := w.m.e.opts.WorkspaceQuota; q.Bytes > 0 {
		room = min(room, q.Bytes-usage.Bytes)
	}
	if q := w.m.e.opts.PrincipalQuota; q.Bytes > 0 {
		others, err := w.m.others(ctx)
		if err != nil {
			return 0
		}
		room = min(room, q.Bytes-usage.Bytes-others.Bytes)
	}
	return max(room, 0)
}

// enter counts in a run, which leave counts out.
func (m *mount) enter(ctx context.Context, r *run) error {
	return m.admit(ctx, func() {
		m.runs[r] = true
		m.holds.begun++
	})
}

// resume counts in a run that another process began.
func (m *mount) resume(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[r] = true
	m.holds.begun++
}

func (m *mount) leave(r *run) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, r)
}

// quiet reports whether neither a run nor an upload goes on.
func (m *mount) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.runs) == 0 && m.holds.uploads == 0
}

// activity returns how many runs, uploads and transfers there were so far, and
// whether none goes on.
func (m *mount) activity() (begun int64, quiet bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds.begun + m.transfers.begun, len(m.runs) == 0 && m.holds.uploads == 0 && m.transfers.begun == m.transfers.ended
}

// endRuns ends the runs of all sandboxes that have the workspace: nothing tells
// which of them filled it. One that is just beginning is ended when it has.
func (m *mount) endRuns(why error) {
	m.mu.Lock()
	runs := make([]*run, 0, len(m.runs))
	for r := range m.runs {
		runs = append(runs, r)
	}
	m.mu.Unlock()
	for _, r := range runs {
		m.e.mu.Lock()
		begun := m.e.runs[r.rec.ID] == r
		m.e.mu.Unlock()
		if !begun {
			continue
		}
		r.mu.Lock()
		ends := r.fate != fateNone
		r.mu.Unlock()
		if !ends {
			m.e.work(func() { r.kill(fateDiskFull, why) })
		}
	}
}

// noteSoon records what the workspace holds for other processes, if that has
// changed and was not recorded this very second.
func (m *mount) noteSoon(usage sandbox.WorkspaceUsage) {
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

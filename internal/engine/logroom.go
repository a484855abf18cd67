package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Space for logs is shared between principals by two pools of bytes, each half of
// Options.LogsSize. Logs of runs that go on grow in the one, and none of them is
// taken away. Logs of runs that ended are in the other, which evicts the least
// recently used log of the principal that holds most. Bytes are held before they
// are written.

const (
	// firstLogChunk is what a log takes of the pool with its first byte. Later
	// it takes as much as it has, and a segment at most. A part of the pool is
	// for first chunks only.
	firstLogChunk = 64 << 10
	// recordSize is what a run that ended takes besides its log: its record,
	// and what the file system adds to its files.
	recordSize = 16 << 10
	// keepLogTimeout is how long a log waits for its place among those of runs
	// that ended. It keeps its place among the others meanwhile.
	keepLogTimeout = time.Minute
)

// logPools returns the pools of running logs and of kept ones.
func (o Options) logPools() (running, kept *fair.Pool) {
	half := max(o.LogsSize/2, o.LogSize+recordSize)
	running = fair.New(fair.Options{
		Name: "bytes of logs of runs that go on", Total: half, Small: firstLogChunk, Reserve: half / 8, Format: sandbox.FormatBytes,
	})
	return running, fair.New(fair.Options{Name: "bytes of logs", Total: half, Format: sandbox.FormatBytes})
}

// A logRoom is what the log and the results of a run take while it goes on. A nil
// one has no bound.
type logRoom struct {
	pool *fair.Pool
	who  sandbox.Principal

	mu            sync.Mutex
	hold          *fair.Hold // nil before the first byte
	granted, used int64
	full          bool // it got no more, and asks no more
}

// take takes n bytes more. It reports false if the pool has no more for the
// principal, then and ever after.
func (r *logRoom) take(n int64) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return false
	}
	if need := r.used + n; need > r.granted {
		want := max(need, firstLogChunk, min(2*r.granted, r.granted+segmentSize))
		var err error
		if r.hold == nil {
			r.hold, err = r.pool.Try(fair.Request{Principal: r.who, Units: want})
		} else {
			err = r.hold.Resize(want)
		}
		if err != nil {
			r.full = true
			return false
		}
		r.granted = want
	}
	r.used += n
	return true
}

// give gives n bytes back, which the same log may take again.
func (r *logRoom) give(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = max(0, r.used-n)
}

// release gives all back.
func (r *logRoom) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
	r.hold.Release()
}

// A keptLog is the log of a run that ended.
type keptLog struct {
	files logFiles
	ready chan struct{} // closed when hold is set
	hold  *fair.Hold    // nil if there was no place
}

// keepLog moves the log of a run that has just ended to the kept ones.
func (e *Engine) keepLog(rec store.Run, room *logRoom) {
	moves := e.work(func() {
		defer room.release()
		if err := e.holdLog(rec); err != nil {
			e.log.Warn("keep log", "run", rec.ID, "error", err)
		}
	})
	if !moves {
		room.release()
	}
}

// holdLog has a log count among the kept ones, if it does not yet. One for which
// there is no place is removed, with the record of its run.
func (e *Engine) holdLog(rec store.Run) error {
	k := &keptLog{files: logFiles{e.logs, rec.SandboxID, rec.ID}, ready: make(chan struct{})}
	e.mu.Lock()
	if e.kept[rec.ID] != nil {
		e.mu.Unlock()
		return nil
	}
	e.kept[rec.ID] = k
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, keepLogTimeout)
	defer cancel()
	hold, err := e.keptLogs.Acquire(ctx, fair.Request{
		Principal: rec.Principal, Units: rec.KeptBytes + recordSize,
		Evict: func(bool) bool {
			return e.work(func() {
				<-k.ready
				e.dropLog(k)
			})
		},
	})
	k.hold = hold
	close(k.ready)
	if err == nil {
		return nil
	}
	if e.ctx.Err() != nil {
		return nil // the next process counts it
	}
	e.dropLog(k)
	return err
}

// dropLog removes a log and the record of its run.
func (e *Engine) dropLog(k *keptLog) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), cleanupTimeout)
	defer cancel()
	if err := errors.Join(k.files.remove(), e.store.DeleteRun(ctx, k.files.run)); err != nil {
		e.log.Error("remove log", "run", k.files.run, "error", err)
		if k.hold != nil {
			k.hold.Stay()
		}
		return
	}
	e.forgetLog(k.files.run)
}

// forgetLog has a log that was removed no longer count.
func (e *Engine) forgetLog(id string) {
	e.mu.Lock()
	k := e.kept[id]
	delete(e.kept, id)
	delete(e.runs, id) // what it says in memory is not there any more
	e.mu.Unlock()
	if k != nil {
		<-k.ready
		k.hold.Release()
	}
}

// touchLog notes that a log is used.
func (e *Engine) touchLog(id string) {
	e.mu.Lock()
	k := e.kept[id]
	e.mu.Unlock()
	if k == nil {
		return
	}
	select {
	case <-k.ready:
		if k.hold != nil {
			k.hold.Touch()
		}
	default: // it is new
	}
}

// sweepLogs has the pool of kept logs count what there is: also what processes
// before left, and what others of the same state directory keep and remove.
func (e *Engine) sweepLogs(ctx context.Context) error {
	e.mu.Lock()
	had := make([]string, 0, len(e.kept))
	for id := range e.kept {
		had = append(had, id)
	}
	e.mu.Unlock()
	logs, err := e.store.KeptLogs(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(logs))
	var errs []error
	for _, rec := range logs {
		there[rec.ID] = true
		if ctx.Err() == nil {
			errs = append(errs, e.holdLog(rec))
		}
	}
	for _, id := range slices.DeleteFunc(had, func(id string) bool { return there[id] }) {
		e.forgetLog(id)
	}
	return errors.Join(errs...)
}

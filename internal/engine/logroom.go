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

// Two pools of bytes share the space for logs between principals. Each has half
// of Options.LogsSize. The first pool has the logs of runs in progress, and
// evicts none. The second has the logs of finished runs. It evicts the least
// recently used log of the principal that holds most. Bytes are held before
// they are written.

const (
	// firstLogChunk is how many bytes a log takes from the pool with its first
	// byte. Later it takes as much as it has, but at most a segment more. A
	// part of the pool is reserved for first chunks.
	firstLogChunk = 64 << 10
	// recordSize is the size, in bytes, of a finished run besides its log: its
	// record, and the file system's overhead.
	recordSize = 16 << 10
	// keepLogTimeout is how long a log waits for a place in the pool of
	// finished runs. It keeps its place in the first pool meanwhile.
	keepLogTimeout = time.Minute
)

// logPools returns the pool of logs of runs in progress, and the pool of logs
// of finished runs.
func (o Options) logPools() (running, kept *fair.Pool) {
	half := max(o.LogsSize/2, o.LogSize+recordSize)
	running = fair.New(fair.Options{
		Name: "bytes of logs of runs that go on", Total: half, Small: firstLogChunk, Reserve: half / 8, Format: sandbox.FormatBytes,
	})
	return running, fair.New(fair.Options{Name: "bytes of logs", Total: half, Format: sandbox.FormatBytes})
}

// A logRoom is the space that the log and the results of a run in progress
// take. A nil logRoom has no bound.
type logRoom struct {
	pool *fair.Pool
	who  sandbox.Principal

	mu            sync.Mutex
	hold          *fair.Hold // nil before the first byte
	granted, used int64
	full          bool // a request for more was refused; there are no further requests
}

// take takes n more bytes. It reports false if the pool has no more for the
// principal, and always after that.
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

// give returns n bytes, for the same log to take again.
func (r *logRoom) give(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = max(0, r.used-n)
}

// release returns all bytes to the pool.
func (r *logRoom) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = true
	r.hold.Release()
}

// A keptLog is the log of a finished run.
type keptLog struct {
	files logFiles
	ready chan struct{} // closed when hold is set
	hold  *fair.Hold    // nil if there was no place
}

// keepLog moves the log of a run that has just ended to the pool of finished
// runs.
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

// holdLog takes a place for a log in the pool of finished runs, unless it has
// one. A log that gets no place is removed, with the record of its run.
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

// forgetLog gives back the place of a log that was removed.
func (e *Engine) forgetLog(id string) {
	e.mu.Lock()
	k := e.kept[id]
	delete(e.kept, id)
	delete(e.runs, id) // the log of the run in memory is gone, too
	e.mu.Unlock()
	if k != nil {
		<-k.ready
		k.hold.Release()
	}
}

// touchLog records that a log was used.
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
	default: // the log is new
	}
}

// sweepLogs makes the pool of finished runs agree with the store. The store
// also has logs of earlier processes, and of other processes of the same state
// directory.
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

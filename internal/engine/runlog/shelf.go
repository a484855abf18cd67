package runlog

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// shelfTimeout is how long a log waits for a place among the logs of finished
// runs. It keeps its place in the first pool meanwhile. removeTimeout bounds the
// removal of a log.
const (
	shelfTimeout  = time.Minute
	removeTimeout = 10 * time.Second
)

// Records are the records of runs that a Shelf needs.
type Records interface {
	// KeptLogs returns the logs of the finished runs.
	KeptLogs(ctx context.Context) ([]store.KeptLog, error)
	DeleteRun(ctx context.Context, id string) error
}

// ShelfOptions configure a Shelf. All fields are required.
type ShelfOptions struct {
	Root    *os.Root // as for FilesOf
	Pool    *fair.Pool
	Records Records
	Log     *slog.Logger
	// Work runs a function in the background, and reports whether it does.
	Work func(func()) bool
	// Gone is called for a run whose log was removed.
	Gone func(runID string)
}

// A Shelf has the logs of finished runs, of every process of a state directory.
type Shelf struct {
	opts ShelfOptions
	ctx  context.Context //nolint:containedctx // the life of the shelf, not of a caller

	mu   sync.Mutex
	logs map[string]*shelved // by run ID
}

// A shelved is the log of a finished run.
type shelved struct {
	files Files
	ready chan struct{} // closed when hold is set
	hold  *fair.Hold    // nil if there was no place
}

// NewShelf returns an empty shelf, which takes no more logs when ctx ends.
func NewShelf(ctx context.Context, opts ShelfOptions) *Shelf {
	return &Shelf{opts: opts, ctx: ctx, logs: map[string]*shelved{}}
}

// Keep moves the log of a run that has just ended from its room to the pool of
// finished runs.
func (s *Shelf) Keep(rec store.Run, room *Room) {
	moves := s.opts.Work(func() {
		defer room.Release()
		l := store.KeptLog{ID: rec.ID, SandboxID: rec.SandboxID, Principal: rec.Principal, Bytes: rec.KeptBytes + int64(len(rec.Program))}
		if err := s.hold(l); err != nil {
			s.opts.Log.Warn("keep log", "run", rec.ID, "error", err)
		}
	})
	if !moves {
		room.Release()
	}
}

// hold takes a place for a log in the pool of finished runs, unless it has one.
// A log that gets no place is removed, with the record of its run.
func (s *Shelf) hold(l store.KeptLog) error {
	s.mu.Lock()
	if s.logs[l.ID] != nil {
		s.mu.Unlock()
		return nil
	}
	k := &shelved{files: FilesOf(s.opts.Root, l.SandboxID, l.ID), ready: make(chan struct{})}
	s.logs[l.ID] = k
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, shelfTimeout)
	defer cancel()
	hold, err := s.opts.Pool.Acquire(ctx, fair.Request{
		Principal: l.Principal, Units: l.Bytes + recordSize,
		Evict: func(bool) bool {
			return s.opts.Work(func() {
				<-k.ready
				s.drop(k)
			})
		},
	})
	k.hold = hold
	close(k.ready)
	if err == nil {
		return nil
	}
	if s.ctx.Err() != nil {
		return nil // the next process counts it
	}
	s.drop(k)
	return err
}

// drop removes a log and the record of its run.
func (s *Shelf) drop(k *shelved) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), removeTimeout)
	defer cancel()
	if err := errors.Join(k.files.Remove(), s.opts.Records.DeleteRun(ctx, k.files.run)); err != nil {
		s.opts.Log.Error("remove log", "run", k.files.run, "error", err)
		if k.hold != nil {
			k.hold.Stay()
		}
		return
	}
	s.forget(k.files.run)
}

// forget gives back the place of a log that was removed.
func (s *Shelf) forget(id string) {
	s.mu.Lock()
	k := s.logs[id]
	delete(s.logs, id)
	s.mu.Unlock()
	s.opts.Gone(id)
	if k != nil {
		<-k.ready
		k.hold.Release()
	}
}

// Touch records that a log was used.
func (s *Shelf) Touch(id string) {
	s.mu.Lock()
	k := s.logs[id]
	s.mu.Unlock()
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

// Sweep makes the pool of finished runs agree with the records. They also have
// logs of earlier processes, and of other processes of the same state directory.
func (s *Shelf) Sweep(ctx context.Context) error {
	s.mu.Lock()
	had := slices.Collect(maps.Keys(s.logs))
	s.mu.Unlock()
	logs, err := s.opts.Records.KeptLogs(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(logs))
	var errs []error
	for _, l := range logs {
		there[l.ID] = true
		if ctx.Err() == nil {
			errs = append(errs, s.hold(l))
		}
	}
	for _, id := range slices.DeleteFunc(had, func(id string) bool { return there[id] }) {
		s.forget(id)
	}
	return errors.Join(errs...)
}

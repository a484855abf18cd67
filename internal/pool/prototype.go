package pool

import (
	"context"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// A prototype is a snapshot of a warm box for which Further was done. The pool makes
// the further boxes of its shape from it, without Ready and Further. No caller had the
// box, so a prototype has no caller's code and data.
type prototype struct {
	id    string
	bytes int64
	made  time.Time
}

const (
	// worthTime is the time of Further from which on a prototype costs less CPU time
	// than it saves. docs/performance.md has the measurement.
	worthTime = 200 * time.Millisecond
	// worthRequests is the number of requests for a shape from which on there will be
	// more. A server for one client on standard input has one, often.
	worthRequests = 2
	// maxPrototypes bounds the disk space. The shape with the oldest request loses its
	// prototype.
	maxPrototypes = 4
	// prototypeAge is the maximum age of a prototype. All its boxes have the same
	// addresses and hash seeds, so one that leaks must not serve for long.
	prototypeAge = 24 * time.Hour
	// snapshotPause is the pause after a snapshot that failed.
	snapshotPause = 10 * time.Minute
)

// wantsPrototype reports whether to make a prototype of a box of s, for which Further
// took that long.
func (p *Pool) wantsPrototype(s *shape, took time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The values of secrets are on no disk.
	return p.opts.Snapshots != nil && len(s.spec.Secrets) == 0 && took >= worthTime && s.requests >= worthRequests &&
		s.prototype == nil && time.Since(s.noPrototype) > snapshotPause
}

// makePrototype makes a prototype of a box of s. The streams to the box end.
func (p *Pool) makePrototype(ctx context.Context, s *shape, w *warm) error {
	begun := time.Now()
	pr := &prototype{id: p.opts.Shard.NewID(), made: begun}
	// Add it to the ledger first, because a snapshot that is not in it is a stray.
	err := p.opts.Ledger.AddWarm(ctx, pr.id)
	if err == nil {
		var snapshot driver.Snapshot
		snapshot, err = driver.TakeSnapshot(ctx, w.box, pr.id)
		pr.bytes = snapshot.Bytes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.closed {
		s.noPrototype = begun
		p.spent = append(p.spent, pr.id)
		return err
	}
	if len(p.prototypesLocked()) >= maxPrototypes {
		p.dropPrototypeLocked(slices.MinFunc(p.prototypesLocked(), func(a, b *shape) int { return a.used.Compare(b.used) }))
	}
	s.prototype = pr
	p.log.Info("further sandboxes are made from one that is ready", "image", s.spec.Image, "bytes", pr.bytes, "took", time.Since(begun))
	return nil
}

// prototypesLocked returns the shapes that have a prototype. The caller holds p.mu.
func (p *Pool) prototypesLocked() (shapes []*shape) {
	for _, s := range p.shapes {
		if s.prototype != nil {
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// dropPrototypeLocked takes the prototype of a shape away, if it has one. The next trim
// removes its files. The caller holds p.mu.
func (p *Pool) dropPrototypeLocked(s *shape) {
	if s.prototype != nil {
		p.spent = append(p.spent, s.prototype.id)
		s.prototype = nil
	}
}

// removeSpent removes the files of prototypes that no shape has any more. If that fails,
// the next call retries it.
func (p *Pool) removeSpent(ctx context.Context) {
	p.mu.Lock()
	spent := p.spent
	p.spent = nil
	p.mu.Unlock()
	for _, id := range spent {
		err := p.opts.Snapshots.RemoveSnapshot(ctx, id)
		if err == nil {
			// The sweep of the state directory skips every entry of the ledger.
			err = p.unlist(ctx, id)
		} else {
			p.mu.Lock()
			p.spent = append(p.spent, id)
			p.mu.Unlock()
		}
		if err != nil && ctx.Err() == nil {
			p.log.Error("remove the snapshot of a warm sandbox", "snapshot", id, "error", err)
		}
	}
}

// makeFrom makes a box from the prototype of s. If the prototype does not fit the
// machine any more, the shape loses it.
func (p *Pool) makeFrom(ctx context.Context, s *shape, pr *prototype, spec *driver.Spec) (driver.Box, error) {
	spec.SharesSnapshot = true
	b, err := p.opts.Snapshots.CreateFrom(ctx, spec, pr.id)
	if err == nil || ctx.Err() != nil {
		return b, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.prototype == pr {
		p.dropPrototypeLocked(s)
		s.noPrototype = time.Now()
	}
	return nil, err
}

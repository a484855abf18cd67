// Package places counts the sandboxes of a process, and finds a place for another one.
//
// Only the engine imports it. It makes one [Places], which it closes first when it
// ends: from then on no caller gets a place.
package places

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxWaiting bounds the calls of one principal that wait for a place.
const maxWaiting = 256

// Options are the parameters of [New].
type Options struct {
	Max int // the number of places
	// QueueTime is how long a caller waits for a place; zero means no wait. A
	// sandbox may be evicted when it was unused for EvictAfter.
	QueueTime, EvictAfter time.Duration
	Metrics               *metrics.Set
	Now                   func() time.Time
}

// Places are the places for sandboxes of a process. Callers use the pool's other
// methods directly.
type Places struct {
	*fair.Pool
	o    Options
	open context.Context //nolint:containedctx // the end of waiting, not a caller's
	end  context.CancelFunc
}

// New returns places of which all are free.
func New(o Options) *Places {
	p := &Places{o: o, Pool: fair.New(fair.Options{
		Name: "sandboxes", Total: int64(o.Max),
		MaxWaiting: maxWaiting, RetryAfter: max(time.Second, o.EvictAfter),
	})}
	p.open, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends all waiting.
func (p *Places) Close() { p.end() }

// Find returns a place for a sandbox of a principal. If all are taken, it waits for one
// until ctx ends, but at most for QueueTime. Meanwhile the pool evicts idle sandboxes,
// and sandboxes of principals above their share. evict is as in [fair.Request].
func (p *Places) Find(ctx context.Context, who sandbox.Principal, evict func(forced bool) bool) (*fair.Hold, error) {
	order := fair.Request{Principal: who, Units: 1, Evict: evict}
	place, err := p.Try(order)
	if err != nil && p.o.QueueTime > 0 {
		begun := p.o.Now()
		place, err = p.await(ctx, order)
		p.o.Metrics.Queued(p.o.Now().Sub(begun))
	}
	switch {
	case err == nil:
		return place, nil
	case ctx.Err() != nil:
		return nil, request.StartError(ctx, ctx.Err())
	case p.open.Err() != nil:
		return nil, request.Closed()
	default:
		return nil, p.full(who)
	}
}

// await waits for a place.
func (p *Places) await(ctx context.Context, order fair.Request) (*fair.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.QueueTime)
	defer cancel()
	defer context.AfterFunc(p.open, cancel)()
	return p.Acquire(ctx, order)
}

// full returns the error for a principal whose sandbox gets no place.
func (p *Places) full(who sandbox.Principal) error {
	st := p.Stats()
	err := sandbox.Errorf(sandbox.Exhausted, "there are %d sandboxes, %d of them yours, and this server may have no more", st.Used, p.Held(who))
	err = sandbox.WithRetryAfter(err, max(time.Second, p.o.EvictAfter))
	return sandbox.WithHint(err, "stop one that is not needed, use one that is there, or try again in %v", sandbox.RetryAfterOf(err))
}

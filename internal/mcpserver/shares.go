package mcpserver

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These are the limits of the pools that MCP servers divide between principals,
// other than sessions.
const (
	// maxWatches bounds the resources that are watched at one time.
	maxWatches = 1000
	// maxCalls bounds the memory of the calls in progress: their messages, plus
	// callCost for each call. On the older transports a call outlives its HTTP
	// request. smallCalls is reserved for calls of at most smallCall.
	maxCalls   = 256 << 20
	callCost   = 64 << 10
	smallCall  = 2 * callCost
	smallCalls = 64 << 20
	// maxAnswers bounds the memory of answers until they have been sent.
	// smallAnswers is reserved for answers of at most smallAnswer.
	maxAnswers   = 256 << 20
	smallAnswer  = 64 << 10 * answerCost
	smallAnswers = 48 << 20
	// answerCost is the memory in bytes for each byte of an answer's content. It
	// includes the content, its copies as text and as JSON, and the event.
	answerCost = 6
	// maxEvents bounds the memory of the answers that are kept for clients that
	// reconnect.
	maxEvents = 32 << 20
	// shareWait is how long a call waits for its principal's share.
	shareWait = 10 * time.Second
	// manyWaiting bounds the requests of one principal that wait for units of a
	// pool. It is large, because calls hold most units only for a short time.
	manyWaiting = 1024
)

// Shares are the resource pools of all MCP servers of a process, divided between
// principals.
type Shares struct {
	sessions, listeners, watches, calls, answers, searches, events *fair.Pool
}

// NewShares returns shares with maxSessions sessions and as many listeners; zero
// is [DefaultMaxSessions].
func NewShares(maxSessions int) *Shares {
	total := int64(orDefault(maxSessions, DefaultMaxSessions))
	pool := func(o fair.Options) *fair.Pool {
		o.MaxWaiting = manyWaiting
		return fair.New(o)
	}
	return &Shares{
		sessions:  pool(fair.Options{Name: "MCP sessions", Total: total, RetryAfter: retryAfter}),
		listeners: pool(fair.Options{Name: "MCP listeners", Total: total, RetryAfter: retryAfter}),
		watches:   pool(fair.Options{Name: "watches", Total: maxWatches}),
		calls: pool(fair.Options{
			Name: "bytes of calls", Total: maxCalls, Small: smallCall, Reserve: smallCalls, Format: sandbox.FormatBytes,
		}),
		answers: pool(fair.Options{
			Name: "bytes of answers", Total: maxAnswers, Small: smallAnswer, Reserve: smallAnswers, Format: sandbox.FormatBytes,
		}),
		// One unit is a search, or the reading of an answer whose size is not
		// known in advance.
		searches: pool(fair.Options{Name: "searches", Total: int64(max(4, 2*runtime.GOMAXPROCS(0)))}),
		events:   pool(fair.Options{Name: "bytes of events", Total: maxEvents, Format: sandbox.FormatBytes}),
	}
}

// Stats returns one function for each pool, which returns the pool's current
// figures.
func (s *Shares) Stats() []func() fair.Stats {
	return []func() fair.Stats{
		s.sessions.Stats, s.listeners.Stats, s.watches.Stats, s.calls.Stats, s.answers.Stats, s.searches.Stats, s.events.Stats,
	}
}

// holdNow takes one unit of a pool without waiting. If the pool needs the unit
// for another principal, it calls end and releases the hold.
func holdNow(p *fair.Pool, who sandbox.Principal, end func()) (*fair.Hold, error) {
	var held atomic.Pointer[fair.Hold]
	hold, err := p.Try(fair.Request{Principal: who, Units: 1, Evict: func(forced bool) bool {
		h := held.Load()
		if !forced || h == nil {
			return false
		}
		end()
		h.Release()
		return true
	}})
	held.Store(hold)
	return hold, err
}

// acquire waits for units of a pool for at most shareWait.
func acquire(ctx context.Context, p *fair.Pool, r fair.Request) (*fair.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, shareWait)
	defer cancel()
	return p.Acquire(ctx, r)
}

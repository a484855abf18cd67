package mcpserver

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Totals of what MCP servers share between principals, beside sessions.
const (
	// maxWatches bounds the resources that are watched at one time.
	maxWatches = 1000
	// maxCalls bounds the memory of the calls under way: that of their messages,
	// and callCost for each. A call on the older transports goes on when its
	// request over HTTP has ended. Calls of at most smallCall have a part of it for
	// their own.
	maxCalls   = 256 << 20
	callCost   = 64 << 10
	smallCall  = 2 * callCost
	smallCalls = 64 << 20
	// maxAnswers bounds the memory of answers that are being made or sent. An
	// answer of at most smallAnswer has a part of it for its own.
	maxAnswers   = 256 << 20
	smallAnswer  = 64 << 10 * answerCost
	smallAnswers = 48 << 20
	// answerCost is the memory that a byte of content takes until the answer
	// has left: the content, its copies as text and as JSON, and the event.
	answerCost = 6
	// maxEvents bounds the answers that are kept for clients that come back.
	maxEvents = 32 << 20
	// shareWait is how long a call waits for its principal's share.
	shareWait = 10 * time.Second
	// manyWaiting is how many calls of a principal may wait for what each of
	// them needs for a short time.
	manyWaiting = 1024
)

// Shares are what the MCP servers of a process have together, divided between
// principals.
type Shares struct {
	sessions, listeners, watches, calls, answers, searches, events *fair.Pool
}

// NewShares returns shares with so many sessions; zero is [DefaultMaxSessions].
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
		// A search, or an answer whose size is known only once it is read.
		searches: pool(fair.Options{Name: "searches", Total: int64(max(4, 2*runtime.GOMAXPROCS(0)))}),
		events:   pool(fair.Options{Name: "bytes of events", Total: maxEvents, Format: sandbox.FormatBytes}),
	}
}

// Stats returns what tells the figures of each resource.
func (s *Shares) Stats() []func() fair.Stats {
	return []func() fair.Stats{
		s.sessions.Stats, s.listeners.Stats, s.watches.Stats, s.calls.Stats, s.answers.Stats, s.searches.Stats, s.events.Stats,
	}
}

// holdNow is a hold of one unit for something in use, which ends by end when
// another principal needs its share.
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

// acquire waits for units of a pool, but not for long.
func acquire(ctx context.Context, p *fair.Pool, r fair.Request) (*fair.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, shareWait)
	defer cancel()
	return p.Acquire(ctx, r)
}

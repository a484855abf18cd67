package ledger

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// DefaultMaxSessions is the usual number of places for sessions.
const DefaultMaxSessions = 1000

// RetryAfter is how long a client should wait that was refused a session.
const RetryAfter = 5 * time.Second

// AnswerCost is the memory in bytes for each byte of an answer's content. It
// includes the content, its copies as text and as JSON, and the event.
const AnswerCost = 6

// These are the limits of the pools other than sessions.
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
	smallAnswer  = 64 << 10 * AnswerCost
	smallAnswers = 48 << 20
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
	Sessions  *fair.Pool // open sessions over HTTP
	Listeners *fair.Pool // streams on which a server only notifies
	Watches   *fair.Pool // resources that are followed for subscribers
	Calls     *fair.Pool // bytes of the messages of calls in progress
	Answers   *fair.Pool // bytes of answers that have not been sent
	Searches  *fair.Pool // searches in progress, and readings of unknown size
	Events    *fair.Pool // bytes of events for clients that reconnect
}

// NewShares returns shares with maxSessions sessions and as many listeners; zero
// is [DefaultMaxSessions].
func NewShares(maxSessions int) *Shares {
	total := int64(cmp.Or(maxSessions, DefaultMaxSessions))
	pool := func(o fair.Options) *fair.Pool {
		o.MaxWaiting = manyWaiting
		return fair.New(o)
	}
	return &Shares{
		Sessions:  pool(fair.Options{Name: "MCP sessions", Total: total, RetryAfter: RetryAfter}),
		Listeners: pool(fair.Options{Name: "MCP listeners", Total: total, RetryAfter: RetryAfter}),
		Watches:   pool(fair.Options{Name: "watches", Total: maxWatches}),
		Calls: pool(fair.Options{
			Name: "bytes of calls", Total: maxCalls, Small: smallCall, Reserve: smallCalls, Format: sandbox.FormatBytes,
		}),
		Answers: pool(fair.Options{
			Name: "bytes of answers", Total: maxAnswers, Small: smallAnswer, Reserve: smallAnswers, Format: sandbox.FormatBytes,
		}),
		// One unit is a search, or the reading of an answer whose size is not
		// known in advance.
		Searches: pool(fair.Options{Name: "searches", Total: int64(max(4, 2*runtime.GOMAXPROCS(0)))}),
		Events:   pool(fair.Options{Name: "bytes of events", Total: maxEvents, Format: sandbox.FormatBytes}),
	}
}

// Stats returns one function for each pool, which returns the pool's current
// figures.
func (s *Shares) Stats() []func() fair.Stats {
	return []func() fair.Stats{
		s.Sessions.Stats, s.Listeners.Stats, s.Watches.Stats, s.Calls.Stats, s.Answers.Stats, s.Searches.Stats, s.Events.Stats,
	}
}

// HoldNow takes one unit of a pool without waiting. If the pool needs the unit
// for another principal, it calls end and releases the hold.
func HoldNow(p *fair.Pool, who sandbox.Principal, end func()) (*fair.Hold, error) {
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

// Acquire waits for units of a pool for at most shareWait.
func Acquire(ctx context.Context, p *fair.Pool, r fair.Request) (*fair.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, shareWait)
	defer cancel()
	return p.Acquire(ctx, r)
}

// Package notices sends a session log notifications about the sandboxes and runs of its
// principal, after the session has set a level.
//
// Only package mcpserver imports it. A [Notices] follows each principal once, for all of
// its sessions, by polling: the engine has no events for it, and an open stream to a
// sandbox would keep the sandbox from resting. It looks only while a sandbox of the
// principal lives, or after a call. Following ends with the last session, or by Close.
//
// A notice has identifiers, verdicts and counts. It has no code, output, names or hosts,
// because clients write notices to files.
package notices

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// lookEvery is the interval between two looks.
	lookEvery = 2 * time.Second
	// burst is how many notices a session gets at a time. Each look adds one.
	burst = 20
	// maxRuns bounds the runs of a look. The end of an older run has no notice.
	maxRuns = 100
)

// Engine is the part of package engine that notices use.
type Engine interface {
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error)
}

// A Session is a session of a client; see [mcp.ServerSession]. Log drops messages below
// the level of the session.
type Session interface {
	Log(ctx context.Context, params *mcp.LoggingMessageParams) error
	Wait() error
}

// Notices sends notices to all sessions of a server. It is safe for concurrent use.
type Notices struct {
	engine Engine
	log    *slog.Logger

	mu        sync.Mutex
	closed    bool
	followers map[sandbox.Principal]*follower
	ending    sync.WaitGroup
}

// New returns a Notices that follows nothing yet.
func New(e Engine, log *slog.Logger) *Notices {
	return &Notices{engine: e, log: log, followers: map[sandbox.Principal]*follower{}}
}

// A follower follows one principal. Notices.mu guards its fields but seen.
type follower struct {
	principal sandbox.Principal
	sessions  map[Session]*allowance
	cancel    context.CancelFunc

	touched bool           // there was a call since the last look
	looks   int            // number of looks
	waiting map[string]int // number of calls that wait, by run
	told    map[string]int // runs whose end a call has returned, with the looks at that time

	seen state // of the last look; only the follower's goroutine uses it
}

// An allowance is how many notices a session may get now, and how many were dropped.
type allowance struct{ left, dropped int }

// Follow begins to send notices about a principal to a session. It does nothing for a
// session that has them already. It returns when the present state is known, so that
// later changes have a notice.
func (n *Notices) Follow(ctx context.Context, p sandbox.Principal, ss Session) {
	began := time.Now()
	first, err := n.look(ctx, p)
	if err != nil {
		n.log.Warn("look at sandboxes for notices", "principal", p, "error", err)
	}
	first.began = began

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	f := n.followers[p]
	if f == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f = &follower{
			principal: p, sessions: map[Session]*allowance{}, cancel: cancel, seen: first,
			waiting: map[string]int{}, told: map[string]int{},
		}
		n.followers[p] = f
		n.ending.Go(func() { n.follow(ctx, f) })
	}
	if f.sessions[ss] != nil {
		return
	}
	f.sessions[ss] = &allowance{left: burst}
	go func() {
		_ = ss.Wait() // how the session ended makes no difference
		n.forget(f, ss)
	}()
}

// forget ends the notices of a session, and the follower with the last one.
func (n *Notices) forget(f *follower, ss Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(f.sessions, ss)
	if len(f.sessions) == 0 && n.followers[f.principal] == f {
		f.cancel()
		delete(n.followers, f.principal)
	}
}

// Close ends all notices for good, and waits for that.
func (n *Notices) Close() {
	n.mu.Lock()
	n.closed = true
	for p, f := range n.followers {
		f.cancel()
		delete(n.followers, p)
	}
	n.mu.Unlock()
	n.ending.Wait()
}

// Touch says that a call of a principal has ended, which may have changed something.
func (n *Notices) Touch(p sandbox.Principal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.followers[p]; f != nil {
		f.touched = true
	}
}

// Waiting says that a call waits for a run, whose end then needs no notice. The caller
// must call done, and say whether the call returns the end of the run.
func (n *Notices) Waiting(p sandbox.Principal, runID string) (done func(finished bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.followers[p]
	if f == nil {
		return func(bool) {}
	}
	f.waiting[runID]++
	return func(finished bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if f.waiting[runID]--; f.waiting[runID] == 0 {
			delete(f.waiting, runID)
		}
		if finished {
			f.told[runID] = f.looks
		}
	}
}

// follow looks and sends until ctx ends.
func (n *Notices) follow(ctx context.Context, f *follower) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !n.due(f) {
			continue
		}
		next, err := n.look(ctx, f.principal)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			n.log.Warn("look at sandboxes for notices", "principal", f.principal, "error", err)
			continue
		}
		n.send(ctx, f, n.news(f, next))
	}
}

// due reports whether anything can have changed since the last look.
func (n *Notices) due(f *follower) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	due := f.touched || f.seen.live > 0 || f.seen.unknown()
	f.touched = false
	for _, a := range f.sessions {
		a.left = min(a.left+1, burst)
	}
	return due
}

// send sends notices to all sessions of a follower, within their allowances.
func (n *Notices) send(ctx context.Context, f *follower, notices []notice) {
	type message struct {
		to Session
		notice
	}
	var messages []message
	n.mu.Lock()
	for ss, a := range f.sessions {
		for _, one := range notices {
			if a.left == 0 {
				a.dropped++
				continue
			}
			a.left--
			messages = append(messages, message{ss, one})
		}
		if a.dropped > 0 && a.left > 0 {
			a.left--
			messages = append(messages, message{ss, notice{level: "notice", data: data{Event: "notices_dropped", Count: a.dropped}}})
			a.dropped = 0
		}
	}
	n.mu.Unlock()
	for _, m := range messages {
		err := m.to.Log(ctx, &mcp.LoggingMessageParams{Logger: "glovebox", Level: m.level, Data: m.data})
		if err != nil && ctx.Err() == nil {
			n.log.Debug("send a notice", "principal", f.principal, "error", err)
		}
	}
}

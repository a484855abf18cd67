package engine

import (
	"slices"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A sandboxState is where a live sandbox is in its life. docs/ARCHITECTURE.md
// has a diagram of the moves.
//
// The record of the sandbox has a state of its own, which other processes see.
// A move to running or hibernated changes both.
type sandboxState int

const (
	starting   sandboxState = iota // it is being made, or taken over
	cancelled                      // it is starting, and stops when that ends
	failed                         // it did not start
	running                        // it can be used; it may be paused until then
	hibernated                     // it can be used; its idle limit does not count until then
	stopping                       // it is being stopped, or will be in a moment
	stuck                          // a stop failed; a later one tries again
	gone                           // nothing is left of it
	released                       // it is left to the next process
)

func (s sandboxState) String() string {
	return [...]string{"starting", "cancelled", "failed", "running", "hibernated", "stopping", "stuck", "gone", "released"}[s]
}

// sandboxMoves are the states that may follow a state.
var sandboxMoves = map[sandboxState][]sandboxState{
	starting:   {cancelled, failed, running, hibernated},
	cancelled:  {failed, stopping},
	running:    {hibernated, stopping, released},
	hibernated: {running, stopping, released},
	stopping:   {stuck, gone, released},
	stuck:      {stopping},
}

// mayBecome reports whether next may follow the state.
func (s sandboxState) mayBecome(next sandboxState) bool {
	return slices.Contains(sandboxMoves[s], next)
}

// moveLocked makes next the state of the sandbox. It refuses a move that may not
// be, and logs it, because that is a bug. b.mu is held.
func (b *liveSandbox) moveLocked(next sandboxState) bool {
	if !b.state.mayBecome(next) {
		b.e.log.Error("a state of a sandbox cannot follow", "sandbox", b.id, "state", b.state, "next", next)
		return false
	}
	b.state = next
	switch next {
	case running:
		b.rec.State = sandbox.Running
	case hibernated:
		b.rec.State = sandbox.Hibernated
	}
	return true
}

// begin ends the start of the sandbox: from here on it can be used.
func (b *liveSandbox) begin() {
	b.mu.Lock()
	b.since = b.e.now()
	switch {
	case b.state == cancelled: // a stop came too late to end the start
		b.moveLocked(stopping)
	case b.rec.State == sandbox.Hibernated:
		b.moveLocked(hibernated)
	default:
		b.moveLocked(running)
	}
	b.mu.Unlock()
	close(b.ready)
}

// fail records that the sandbox did not start.
func (b *liveSandbox) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moveLocked(failed)
}

// livesLocked reports whether the sandbox has started, does not stop, and is
// this process's.
func (b *liveSandbox) livesLocked() bool { return b.state == running || b.state == hibernated }

// stoppedLocked returns the error for a use of a sandbox that stops or has
// stopped, or nil.
func (b *liveSandbox) stoppedLocked() error {
	if b.why == nil {
		return nil
	}
	return request.Stopped(b.id, b.why.Cause)
}

// refuseLocked returns the error for a use of a sandbox that cannot be used, or
// nil.
func (b *liveSandbox) refuseLocked() error {
	if b.state == failed {
		return request.NoSandbox(b.id)
	}
	if err := b.stoppedLocked(); err != nil {
		return err
	}
	if b.state == released {
		return request.Closed()
	}
	return nil
}

// stops reports whether the sandbox stops or has stopped.
func (b *liveSandbox) stops() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why != nil
}

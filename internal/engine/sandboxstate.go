package engine

import "slices"

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

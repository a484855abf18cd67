package run

import "slices"

// A state is where a run of this process is in its life. docs/ARCHITECTURE.md
// has a diagram of the moves. A run that is being ended is going until it has
// finished; its fate says why it is being ended.
type state int

const (
	beginning state = iota // its program is being started, and no call finds it
	going                  // its program runs
	leaving                // it is about to be left to the next process
	finished               // it has ended, and its verdict is settled
	left                   // it is left to the next process
	dropped                // it never began
)

func (s state) String() string {
	return [...]string{"beginning", "going", "leaving", "finished", "left", "dropped"}[s]
}

// moves are the states that may follow a state. A run that is leaving may
// still finish, if its end arrives first.
var moves = map[state][]state{
	beginning: {going, leaving, dropped},
	going:     {leaving, finished},
	leaving:   {finished, left, dropped},
}

// mayBecome reports whether next may follow the state.
func (s state) mayBecome(next state) bool { return slices.Contains(moves[s], next) }

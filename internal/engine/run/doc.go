// Package run lives the life of a run: it starts the program in the guest of a
// sandbox, keeps the output and the results, ends the run in time or on request,
// and settles and records its verdict.
//
// The sandbox stays the engine's. A run knows it as a [Sandbox], and asks the
// engine about its life through the interface [Life].
//
// # Lifecycle
//
// [NewSet] makes the set of all runs of a process, and [Set.NewSandbox] the
// place of the runs of one sandbox. [Sandbox.New] makes a run, and [Run.Start]
// starts its program. [Sandbox.Reopen] and [Run.Resume] do the same for a run that
// another process began. The engine adds the run to its sandbox between the two
// calls, or refuses it by [Run.Refuse].
//
// A goroutine of the run, its pump, reads the events of its program, and only the
// pump finishes the run. When [Run.Done] is closed, the run has finished, or this
// process has left it to the next ([Run.LetGo]), or it never began. A finished run
// stays in its set until some later runs have ended.
//
// # Locks
//
// Set.mu, Sandbox.mu, Run.mu and baselineFile.mu are leaves: a goroutine that
// holds one of them takes no other lock of this package, and calls no method of
// [Life] and no function of [Options] except Now. The locks of package runlog come
// below them.
//
// A method that needs a lock of its receiver held ends in Locked. Only package
// engine imports this package.
package run

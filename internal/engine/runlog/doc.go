// Package runlog keeps the output and the results of runs in files, within
// bounds. Another process, or this one after a crash, can read the files without
// an index.
//
// # Lifecycle
//
// [New] makes the log of a run that begins, and [Reopen] continues the log of a
// run that another process began. A [Room] holds the space for it among the runs
// in progress. When the run has ended, [Shelf.Keep] moves the log to the space
// for finished runs, until the log is evicted or removed.
//
// # Locks
//
// Shelf.mu, the mu of a Log, the mu of Results and the mu of a Room are leaves,
// with one order among them: the mu of a Log or of Results, then the mu of their
// Room. The pools of package fair come below all of them.
//
// Only packages engine and engine/run import this package.
package runlog

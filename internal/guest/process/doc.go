// Package process starts programs in the sandbox, carries their input and
// output, and kills their process trees. A program that was started for a caller
// is a run. A context's interpreter is a [Process] too, whose input and output
// belong to its context.
//
// Packages guest, contexts and picture import it. A [Set] owns its process: it
// reaps every child, adopts orphans, and assumes that no other code starts
// programs. So a process has one Set. [New] makes it, and Close kills every
// process that it started.
//
// The order of the locks is: the kills of a Process, then the reaper, then the
// table. The lock of an output, of the epoller or of the shortages is taken
// last. The table takes the lock of an output while it drops ended runs.
package process

// Package fake is a driver for tests: its boxes are plain processes of this
// machine, each a guest in a directory of its own. It isolates nothing, and
// says so; what runs in its boxes can do whatever the caller can. It lets
// engine, pool and edges be tested with a real guest, as any user, in
// milliseconds, and it fails on demand: see [Options].
//
// Only tests import it. It runs on Linux. A test binary that uses it is also
// the program of its helpers, so its TestMain begins with [Hook]:
//
//	func TestMain(m *testing.M) {
//		fake.Hook()
//		os.Exit(m.Run())
//	}
//
// # Processes
//
// Each box has a supervisor, a child of the process that created it, and the
// supervisor has the guest for a child. The supervisor adopts whatever the
// guest loses, so all that the box starts stays below it. It ends the box when
// it is told to, when the guest dies, and, if the box is attached, when the
// process that created it is no more: it holds the reading end of a pipe whose
// writing end only that process has. Then it kills all that is below it,
// removes the box's directory and exits. A lock on a file in that directory
// tells whether a supervisor lives.
//
// If the supervisor itself is killed, by code in the box for example, then the
// guest is told to end its own processes; ones that escape even that are left.
//
// # Directory
//
// The state directory holds boxes/ID for each box, with the files lock, pid,
// guest (the guest's socket), control (the supervisor's) and work, in which
// programs start that have no workspace; those that have start in it.
package fake

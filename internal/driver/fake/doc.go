// Package fake is a driver for tests. Its boxes are plain processes of this
// machine, each a guest in a directory of its own. It isolates nothing and declares
// this; code in its boxes has all rights of the caller. Tests of the engine, the
// pool and the edges get a real guest in milliseconds, as any user. The driver
// fails on demand: see [Options].
//
// Only tests import it. It runs on Linux. Its helper processes execute the test
// binary, so TestMain of that binary begins with [Hook]:
//
//	func TestMain(m *testing.M) {
//		fake.Hook()
//		os.Exit(m.Run())
//	}
//
// # Processes
//
// Each box has a supervisor, a child of the process that created it. The guest is a
// child of the supervisor. The supervisor is a child subreaper, so all processes of
// the box stay below it. It ends the box on a signal and when the guest dies. It
// also ends an attached box when its creator ends: only the creator has the writing
// end of a pipe that the supervisor reads.
//
// To end a box, the supervisor kills all processes below it, removes the box's
// directory and exits. It holds a lock on a file in that directory while it lives.
//
// If the supervisor itself is killed, for example by code in the box, the guest
// gets SIGTERM and ends its own processes. Processes that escape even the guest are
// left.
//
// # Directory
//
// The state directory holds boxes/ID for each box, with the files lock, pid, spec,
// guest (the guest's socket) and control (the supervisor's socket). The directory
// work is the working directory of programs in boxes without a workspace; other
// programs start in their workspace.
package fake

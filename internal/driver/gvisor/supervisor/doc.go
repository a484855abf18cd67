// Package supervisor has the code of the supervisor, the helper process that makes
// and watches the boxes of one driver.
//
// cmd/glovebox calls [Main] in the process that the driver started. Main answers the
// driver's requests until their connection ends. Then it destroys the attached boxes
// that it made, and returns. It stays while only it watches the memory of detached
// boxes, and to end detached boxes by their leases, until another supervisor holds
// them.
//
// A box has a directory with its record from before its first resource until after
// its last one. Any supervisor of the state directory can thus attach to the box, and
// clean up after a supervisor that died at any point.
//
// The lock of a box comes before the lock of the supervisor.
//
// Only cmd/glovebox imports this package.
package supervisor

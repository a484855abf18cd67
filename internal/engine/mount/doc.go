// Package mount has the workspaces that the sandboxes of this process use. It
// keeps them within their quotas, says what a run changed, and copies them where
// the driver cannot mount them.
//
// # Lifecycle
//
// [Set.Mount] opens a workspace, or joins its use, until [Mount.Release]. A
// sandbox with the workspace calls [Mount.Wakes] when its programs may write, and
// [Mount.Rests] when it is paused. While one of them is awake, a watcher enforces
// the quota. [Mount.Begin] and [Mount.End] surround a run.
//
// # Locks
//
// A copy holds its turn, then Mount.placing, then one of Set.mu and Mount.mu. No
// goroutine holds both of the last two. Both come before the lock of the engine,
// for Options.Work and Options.Closed. Copy.state is a leaf. No method of a
// Sandbox or a Run is called with any of the locks, except a copy's turn.
//
// Only packages engine and engine/run import this package.
package mount

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
// The order is: Set.mu, Mount.placing, Mount.mu. A copy holds its turn before
// Mount.placing. Copy.state is a leaf. No method of a Sandbox or a Run is called
// with any of the locks.
//
// Only package engine imports this package.
package mount

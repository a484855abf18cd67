// Package files serves the files of a sandbox: entries, contents, watches, and
// the root file system as a layer. Every operation has the rights of the account
// that a request names, except the layer, which is root's.
//
// Only package guest imports it. [New] makes the [Server] of a guest, and Close
// ends its watches. The lock of the watches and the lock of a polled watch are
// never held together.
package files

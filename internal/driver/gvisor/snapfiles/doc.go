// Package snapfiles keeps the files of boxes without memory, in the driver's state
// directory. Only package gvisor imports it.
//
// A snapshot has a directory of its own, as one with memory has. Beside the archive of the
// files, which is compressed and can be encrypted, is a manifest. The manifest is written
// last, so a snapshot without one is incomplete. A [Keeper] has no state.
package snapfiles

// Package regular opens files by untrusted paths without blocking and without
// side effects. A path in a sandbox may lead to a FIFO, a device or a directory;
// all of them are refused.
//
// Only the packages of the guest import it. It has no state. Its functions use
// the rights of the calling thread.
package regular

// Package traffic reads the counts of a sandbox's network, keeps the record of its
// connections, and compares two readings.
//
// [New] makes the recorder of a sandbox that has started and has a network. It has
// nothing to close. The mu of a Recorder is held while the driver and the store are
// asked, and no other lock of the engine is taken under it. Only packages engine
// and engine/run import this package.
package traffic

// Package checkpoint has gVisor write the state of a box and read it again, and finds
// out what a state depends on.
//
// Only the supervisor imports it. The sockets of a box that [Streams] notes are all
// the state that it keeps.
package checkpoint

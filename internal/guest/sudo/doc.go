// Package sudo lets the programs of a sandbox become root with the command sudo and
// without a password, as in E2B's sandboxes. Set-user-ID programs do not work in
// sandboxes. So the command is the guest's own program: a [Main] that asks the guest
// to start the program, as a delegate of package process.
//
// The two speak over a Unix socket that every program can connect to. The command
// passes its standard streams and its directory. If one of the streams is a
// terminal, it makes a new one for the program, and copies between the two.
//
// It gives a program what a request with the user root has anyway, and so it is no
// boundary. The guest still trusts no data from the socket: it bounds the sessions,
// their requests, and the descriptors.
//
// Only package guest and its tests import this package. A [Server] exists from
// [New] to Close. It serves from Enable on.
package sudo

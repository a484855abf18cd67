// Package gvisor is the embedded driver. Every box is a gVisor sandbox, whose
// kernel, the sentry, is a part of this executable. The driver needs Linux, but
// neither root nor a daemon nor an image.
//
// # Processes
//
// The driver itself only sends requests to a supervisor. The supervisor is a child
// process: the same executable, started again as "glovebox-supervisor" in its own
// mount namespace. For an ordinary user it is also in a user namespace in which it
// is root.
//
// The supervisor calls gVisor's runtime as a library. That library changes the
// standard streams, file descriptors, limits and environment of its process, so it
// does not run in the server. Root and ordinary users take the same path. The
// supervisor also cleans up after a killed server: when its connection to the
// server ends, it destroys all attached boxes and exits. If the supervisor dies
// too, the host kernel kills the attached boxes with it.
//
// The sentry of a box is one process on the host, started from the same executable;
// the processes of the box's programs are others. A box with a network has a second
// process of this kind. The table in cmd/glovebox names the code of each role. The
// executable must be static.
//
// # Packages
//
// This package is the code of the server. Package supervisor is the code of the
// supervisor, and package sentry that of the sentry and its start. Package message
// has what server and supervisor exchange. The other packages below this one are
// parts that several of these processes use.
//
// # Lifecycle
//
// A [Driver] starts its supervisor at the first use, and again if it has ended.
// [Driver.Close] ends it. Driver and client have a lock each, and hold one at a time.
//
// Only the composition root and the doctor import this package.
package gvisor

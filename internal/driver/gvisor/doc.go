// Package gvisor is the embedded driver: every box is a gVisor sandbox, whose
// kernel is a part of this very program. It needs Linux, and neither root, nor
// a daemon, nor an image.
//
// # Processes
//
// The driver itself does no more than speak to a maker: a child process, the
// same executable started anew as "glovebox-maker", in its own mount namespace
// (and, for an ordinary user, in a user namespace where it is root). The maker
// calls gVisor's runtime as a library. This keeps what that library does to
// its process (standard streams, file descriptors, limits, environment) out of
// the server, lets root and ordinary users go the same way, and leaves
// somebody to clean up when the server is killed: at the end of the server's
// connection the maker destroys all attached boxes and exits. Should the maker
// die too, the kernel kills the attached boxes with it.
//
// Each box is one process on the host beside those in which its programs run: the
// sentry, which is the sandbox's kernel, from the same executable again. (A box with
// a network has a second one.) [Reexec], called first thing in main, turns such a
// process into what it should be. That executable must be static.
//
// The composition root and the doctor import this package; nothing else does.
// It is the one package, beside network, that imports gVisor.
package gvisor

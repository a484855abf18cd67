package callfilter

import "golang.org/x/sys/unix"

// A refusedRequest is a request of a multi-purpose system call that the filter
// refuses. The first argument of the call is the request.
type refusedRequest struct {
	nr, request uint32
	errno       unix.Errno
}

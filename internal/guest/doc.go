// Package guest is the agent that is the first process of every sandbox: it
// starts processes, carries their input and output, ends their trees, and
// reads, writes and watches files, over the protocol of package guestapi.
//
// A [Guest] owns the process that it is in: it reaps every child, adopts
// orphans, and assumes that nothing else there starts programs. So there is
// one per process, and tests run it in one of its own. It begins with New,
// serves any number of connections, and ends with Close, which kills what it
// started. [Main] is the whole program, for cmd/glovebox-guest and for those
// that embed it.
//
// The guest trusts who speaks to it (the host, or root inside the sandbox) and
// nobody else: the user's programs run as another user, cannot open its
// socket, and cannot signal or trace it. Every buffer it holds is bounded.
//
// It runs on Linux only. Elsewhere Main says so.
package guest

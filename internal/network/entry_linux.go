package network

// entry is the start of a program that is linked with -E and this symbol's name.
// It runs before Go's runtime has made a thread. It empties the bounding set of
// capabilities, which each thread has. It does so in processes that handle
// untrusted input: gateways and gVisor's sentry. This takes some 10 µs. In a
// started process it takes 41 calls in all threads, or 8 to 18 ms on a busy
// machine. In other processes, and at its end, entry continues with Go's normal
// start.
//
// A program that is linked without it empties the set later: see
// [EmptyBoundingSet].
func entry() //nolint:unused // the linker names it

package network

// entry is where a program begins that is linked with -E and this symbol's name,
// before Go's runtime has made a thread. In the processes that run next to what a
// sandbox sends, a gateway's and gVisor's kernel, it empties the bounding set of
// capabilities, which is a thread's: some 10 µs, where 41 calls in all threads of
// a process that has started take 8 to 18 ms on a busy machine. In any other
// process, and at the end, it goes on as every program of Go's.
//
// A program that was linked without it empties the set later: see
// [EmptyBoundingSet].
func entry() //nolint:unused // the linker names it

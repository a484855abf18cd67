// Package kernels holds the programs that interpreters run for contexts, in
// their own languages, and the messages that they exchange with the guest. The
// guest alone imports it. A [Program] is plain data; an [Assembler] belongs to
// one context.
//
// # Descriptors
//
// The guest starts an interpreter with a one-line bootstrap as its argument
// and these descriptors: 0 is /dev/null; 1 and 2 are pipes that the guest
// reads; 3 is a pipe of requests; 4 is a socket of messages (SOCK_SEQPACKET)
// for events. A shell has two more: 5 is a file that holds the code of a run,
// 6 a pipe of input. The first thing in the pipe of requests is the kernel
// itself, Python's in pieces, so nothing of it is in the sandbox's file system.
//
// # Requests
//
// A request is its length (four bytes, big endian) and a JSON object whose
// field op is its kind: init (once, first: key, prepare, and the parts of the
// kernel), run, input, ping, prepare, reseed, reset. A shell reads its
// requests as lines of shell instead, and evaluates the file of code.
//
// # Events
//
// A message is the context's key (32 characters), a mark, and a piece of at
// most 32 KiB of an event, a JSON object whose field ev is its kind: ready,
// result, error, input, late, end, and the answers to the other requests. The
// mark is '+' if more pieces follow, '.' in the last, and '?' in the last if
// the kernel waits for an answer (one byte) on the same socket.
//
// # Order
//
// What is printed goes to descriptors 1 and 2 like any program's output, and so
// what C code and child processes print is there in its place. A kernel flushes
// before it sends an event, and the guest that receives one first reads all
// that is in the pipes. Behind a result of display, which more output may
// follow, the kernel waits for the guest's answer: what is printed afterwards
// comes afterwards. The order between descriptors 1 and 2 is not kept. Python
// gathers lines that follow each other closely; see Raw in its kernel.
//
// # Threads and processes that outlive their run
//
// Python and JavaScript know which run began a thread (or a chain of
// callbacks); what it prints later comes as an event late with that run's
// number. Of descendants that still write to descriptors 1 and 2 nobody can
// tell: the guest counts what comes between runs as late, and during a run as
// that run's.
//
// # What hostile code can do
//
// User code shares the kernel's process, and can always forge its own results;
// it could as well have computed them. It must not harm the guest or other
// runs: messages without the key (which is in no environment, argument or
// file, so child processes and code that writes to every descriptor lack it)
// are dropped; every message and event is bounded; events name their run, and
// those of another run are late; descriptors are closed on exec, except in a
// shell, whose children see 240 to 246 (3 to 8 in a POSIX shell). Kernels bind
// what they need at the start, and put descriptors and streams right before
// each run, so that code that replaces builtins, streams or modules meets
// itself only. A kernel whose private descriptors were closed or whose
// messages were stolen is as good as dead: its run ends by its deadline, and
// the guest starts a fresh one.
package kernels

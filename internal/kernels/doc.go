// Package kernels holds the programs that interpreters run for contexts, in
// their own languages. It also defines the messages between these kernels and
// the guest. The guest imports it, and the engine for [PlotBackend]. A [Program]
// is plain data. An [Assembler] belongs to one context.
//
// # Descriptors
//
// The guest starts an interpreter with a bootstrap program as its argument and
// with these descriptors. 0 is /dev/null. 1 and 2 are pipes that the guest
// reads. 3 is a pipe of requests. 4 is a socket of messages (SOCK_SEQPACKET) for
// events. A shell has two more: 5 is a file with the code of a run, 6 is a pipe
// of input. Java has a file in memory with its kernel as 5, which its launcher
// compiles. For others the pipe of requests begins with the kernel itself,
// Python's in pieces. So no part of the kernel is in the sandbox's file system.
//
// # Requests
//
// A request is its length (four bytes, big endian) and a JSON object. Its field
// op is the kind: init, run, input, ping, prepare, or reset (Python only). The
// request init comes once, as the first, with the key, the modules to
// prepare, and further parts of the kernel. A shell reads its requests as lines
// of shell instead, and evaluates the file of code.
//
// R and Java have no JSON. Their requests are fields instead: names and values in
// turn, each after its own length. The first pair of the first request is the key.
//
// # Events
//
// An event is a JSON object. Its field ev is the kind: ready, result, error,
// input, late, end, and the answers to the other requests. A message is the
// context's key (32 characters), a mark, and a piece of an event of at most 32
// KiB. The mark is '+' if more pieces follow, and '.' in the last piece. It is
// '?' in the last piece if the kernel waits for an answer (one byte) on the same
// socket.
//
// R and Java cannot write to a socket that they did not open. Their descriptor 4
// is a pipe, and each message comes after its length (four bytes, big endian).
// They never wait for an answer: see below.
//
// # Order
//
// All output goes to descriptors 1 and 2, so the output of C code and of child
// processes is in its right place. A kernel flushes its output before it sends
// an event. The guest drains the pipes before it handles the event. After a
// result of display, which more output may follow, the kernel waits for the
// guest's answer. So later output comes after the result. The order between
// descriptors 1 and 2 is not kept. Python gathers lines that follow each other
// closely; see Raw in its kernel.
//
// # Threads and processes that outlive their run
//
// Python and JavaScript know which run began a thread (or a chain of callbacks).
// Its later output comes as an event late with that run's number. Descendants
// that still write to descriptors 1 and 2 cannot be assigned to a run. The guest
// counts their output between runs as late, and during a run as that run's.
//
// # Hostile code
//
// User code shares the kernel's process, and can always forge its own results:
// it could as well have computed them. It must not harm the guest or other runs.
// These rules prevent that:
//
//   - The guest drops messages without the key. The key is in no environment,
//     argument or file. So child processes lack it, and so does code that writes to
//     every descriptor.
//   - Every message and event is bounded.
//   - Events name their run, and an event of another run is late.
//   - Descriptors are closed on exec, except in a shell. Its children see 240 to
//     245, or 3 to 8 in a POSIX shell.
//   - Kernels bind their functions at the start, and restore descriptors and
//     streams before each run. So code that replaces builtins, streams or modules
//     affects only itself.
//
// A kernel whose private descriptors were closed, or whose messages were stolen,
// is as good as dead. Its run ends at the deadline, and the guest starts a new
// kernel.
package kernels

// Package contexts keeps interpreters alive between runs. A context has at most
// one interpreter, whose program is a kernel of package kernels. Runs take turns
// in a context. Its messages and its output become the events of the run under
// way, in order, or are kept for the next run.
//
// User code shares the process of the kernel and can forge its messages. So a
// message can affect the own context's events only, and every buffer is bounded.
//
// Only package guest imports it. [New] makes the [Server] of a guest. Its
// contexts end with the set of processes that they run in.
//
// The order of the locks is: the interpreter's order, the context's lock, the
// run's lock. The lock of the registry is taken last.
package contexts

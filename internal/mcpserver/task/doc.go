// Package task has the wire types of the Tasks extension of the Model Context
// Protocol (SEP-2663). If a client declares the extension, a call that takes long
// becomes a task. The client polls the task and need not keep a request open.
//
// Packages mcpserver and mcpserver/transport import it, and programs that extend an
// MCP server.
//
// # Lifecycle
//
// [WithSlot] gives each call of a client that supports tasks a [Slot]. The handler
// of the call either answers, or puts a new task into the slot. From then on, the
// client uses the task methods with the task's id. A [Source] answers them.
package task

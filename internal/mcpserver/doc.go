// Package mcpserver is the edge for the Model Context Protocol. It offers the
// engine as MCP tools over stdio, Streamable HTTP and the older HTTP with
// server-sent events (SSE). It speaks every version of the protocol from
// 2024-11-05 to 2026-07-28.
//
// Package transport, below this one, connects the clients, and package answer renders
// the results. Package client knows how clients differ, and package lost keeps runs for
// callers that lost them. Package ledger counts the memory of calls, package task has the wire
// types of tasks, and package visits remembers the sandboxes of sessions.
//
// Package app and a test program import it. It has no rules of its own about
// sandboxes: it decodes arguments, checks their form, calls the [Engine] and renders
// the answer. The answer is rendered twice: for programs (structuredContent) and for
// models (content).
//
// A program that fails is a result with isError and a verdict. A wrong argument
// is a result with isError and a text that says which value would be right. Only
// a fault in the protocol itself is a protocol error.
//
// # Lifecycle
//
// [New] makes a [Server] that does nothing yet. [Server.ServeStdio] serves one
// client until its input ends. [Server.Handler] serves any number of clients over
// HTTP, each with the identity in its request's context. A server may serve both
// at once. [Server.Shutdown] ends calls and sessions for good; the server cannot
// serve again.
//
// A call owns the run that it starts. If the client cancels the call, the server stops
// the run. If the client cancels the call because its own time for calls is over, or its
// connection ends without a word, the run goes on for [Options.Grace], and for good if
// another call asks for it. If the call returns before the run ends, it no longer
// owns the run, and get_run continues with it.
package mcpserver

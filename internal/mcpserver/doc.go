// Package mcpserver is the edge for the Model Context Protocol: it offers the
// engine's work as MCP tools, over stdio, Streamable HTTP and the older HTTP
// with server-sent events, in every version of the protocol from 2024-11-05 to
// 2026-07-28.
//
// Only package app imports it. It owns no rule about sandboxes: it decodes and
// checks the form of arguments, asks the [Engine], and renders what comes back
// for programs (structuredContent) and for models (content). A program that
// fails is a result with isError and a verdict; a wrong argument is a result
// with isError and a text that says what would be right; only what is wrong
// with the protocol itself is a protocol error.
//
// # Lifecycle
//
// [New] makes a [Server] that does nothing yet. [Server.ServeStdio] serves one
// client until its input ends; [Server.Handler] serves any number over HTTP,
// for the identity that it finds in each request's context. Both may be used
// at once. [Server.Shutdown] ends calls and sessions; a Server that was shut
// down serves nothing more.
//
// A client's call owns the run that it starts: when the client cancels the
// call, or goes away, the run is stopped. It ceases to own it when the call
// returns before the run ends, which is how a long run is handed over to
// get_run.
package mcpserver

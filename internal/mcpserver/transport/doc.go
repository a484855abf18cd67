// Package transport connects clients to an MCP server of the SDK, over stdio,
// Streamable HTTP and the older HTTP with server-sent events (SSE). It has everything
// between the bytes and the SDK: dispatch by version of the protocol, bounds on
// messages, sessions and their places, events for clients that reconnect, and the end
// of calls.
//
// Package mcpserver uses it, and package app uses its paths. It knows nothing of
// tools, resources or sandboxes.
//
// # Lifecycle
//
// [New] makes a [Server] that does nothing yet. [Server.ServeStdio] serves one client
// until its input ends. [Server.Handler] serves any number of clients over HTTP, each
// with the identity in its request's context. Handlers of methods call [Server.Begin]
// for each call. [Server.Shutdown] ends calls and sessions for good.
//
// # Locks
//
// Each of calls, openSessions, notes, sseHandler, sseSession and eventStore has a
// mutex mu for its fields. No two of them are held together. sseSession.posting is
// taken before any of them. The pools of [ledger.Shares] call back to evict a holder,
// so no mutex is held when a unit is taken.
package transport

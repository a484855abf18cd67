// Package ledger divides the memory and the places of MCP servers between
// principals, and records what each request holds.
//
// Packages mcpserver and mcpserver/transport use it. Package app makes the [Shares]
// of the process.
//
// # Lifecycle
//
// [Shares] are the pools. A [Ledger] holds units of them for one request: first the
// memory of its messages, then the memory of its answers. A [Book] has the ledgers of
// the requests in progress. The ledger of an HTTP request ends with the request and
// the calls that it began. On SSE it ends when the answer has been sent. On stdio
// each call has its own ledger.
//
// The mutex of a Book and the mutex of a Ledger are not held together, and not while
// a pool is used for a new unit.
package ledger

// Package guestapi is the protocol between the host and the guest: its wire
// types and the client that the host uses.
//
// The protocol is that of E2B's agent, so that one client speaks to both and
// E2B's own SDKs speak to ours: Connect's JSON over HTTP for processes and
// files, plain HTTP for file contents and health. Where we go beyond it, a
// comment says so; an agent that does not know such a field ignores it.
//
// Drivers, the engine and the guest itself import it. A [Client] belongs to
// one sandbox; it holds connections, which Close ends. What a guest sends is
// untrusted: every message is bounded here, and nothing in it is believed
// beyond the sandbox that it comes from.
package guestapi

// Package guestapi is the protocol between the host and the guest: its wire
// types and the client that the host uses.
//
// The protocol is the protocol of E2B's agent. So one client speaks to both
// agents, and E2B's own SDKs speak to our guest. Processes and files use
// Connect's JSON over HTTP; file contents and health use plain HTTP. A comment
// marks each extension as "ours". An agent that does not know such a field
// ignores it.
//
// E2B's agent and E2B's code interpreter send different events, and report an end
// differently. The client turns both into one stream of [Event] with one [End].
//
// Drivers, the engine and the guest itself import this package. A [Client]
// belongs to one sandbox. It holds connections, which Close closes. Data from a
// guest is untrusted: the client bounds every message, and believes it only
// about the guest's own sandbox.
package guestapi

package sandbox

import (
	"net/netip"
	"time"
)

// A Connection is one connection attempt of a sandbox, or one DNS question.
type Connection struct {
	// Number counts a sandbox's connections as they end, from 1.
	Number   int64    `json:"number"`
	Protocol Protocol `json:"protocol"`
	// Host is the name that the sandbox resolved to Address, or the name in a DNS
	// question. It is empty if there is none.
	Host    string     `json:"host,omitempty"`
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	// Blocked says why the connection was refused or ended; empty if it was
	// allowed.
	Blocked BlockReason `json:"blocked,omitempty"`
	// Sent and Received count bytes, seen from the sandbox.
	Sent     int64     `json:"sent_bytes"`
	Received int64     `json:"received_bytes"`
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at"`
}

// A Protocol is the protocol of a connection.
type Protocol string

// The protocols. ProtocolOther is every protocol except TCP and UDP. It is always
// blocked.
const (
	ProtocolTCP   Protocol = "tcp"
	ProtocolUDP   Protocol = "udp"
	ProtocolDNS   Protocol = "dns"
	ProtocolOther Protocol = "other"
)

// A BlockReason says why a connection was blocked.
type BlockReason string

// The reasons.
const (
	BlockedPolicy      BlockReason = "not allowed"               // no rule allows it
	BlockedPrivate     BlockReason = "address is not public"     // no rule names its range
	BlockedHost        BlockReason = "address is the host's own" // no rule names it
	BlockedResolver    BlockReason = "another DNS server"        // by its port or address
	BlockedServerName  BlockReason = "TLS server name"           // missing, or not the resolved name
	BlockedECH         BlockReason = "encrypted server name"     // the gateway cannot read the name
	BlockedHTTPHost    BlockReason = "HTTP host"                 // missing, or not the resolved name
	BlockedOpaque      BlockReason = "neither TLS nor HTTP"      // no rule names the port
	BlockedHeader      BlockReason = "header that the secret does not name"
	BlockedClear       BlockReason = "HTTP to a host with header rules" // they need HTTPS
	BlockedLost        BlockReason = "header rules lost"                // with the server that had their values
	BlockedCertificate BlockReason = "certificate"                      // of a host of secrets
	BlockedQUIC        BlockReason = "QUIC"                             // it hides the server name
	BlockedQuestion    BlockReason = "kind of DNS question"             // not a question for addresses
	BlockedUnresolved  BlockReason = "name not resolved"                // allowed, but the gateway's machine found no address
	BlockedLimit       BlockReason = "limit"                            // on connections or bytes
	BlockedProtocol    BlockReason = "protocol"                         // neither TCP nor UDP
	BlockedChange      BlockReason = "policy changed"                   // while the connection was open
)

// A Destination is a host and port that a sandbox reached or tried to reach, with
// its counts.
type Destination struct {
	Host        string      `json:"host"` // the name, or the address if there is no name
	Port        uint16      `json:"port,omitempty"`
	Blocked     BlockReason `json:"blocked,omitempty"`
	Connections int64       `json:"connections"`
	Sent        int64       `json:"sent_bytes,omitempty"`
	Received    int64       `json:"received_bytes,omitempty"`
}

// Traffic holds the counts of a sandbox's network.
type Traffic struct {
	// Destinations are all destinations since the sandbox began, in the order of
	// first use. Beyond a bound, the rest is counted together under the host
	// [OtherHosts].
	Destinations []Destination `json:"destinations"`
	// Connections are the latest connections that ended, oldest first. Missing
	// counts the requested connections that are no longer kept.
	Connections []Connection `json:"connections"`
	Missing     int64        `json:"missing,omitempty"`
}

// RunNetwork is what a run's sandbox reached while the run went on. Traffic of
// other runs at the same time is included.
type RunNetwork struct {
	Reached []Destination `json:"reached,omitempty"`
	Blocked []Destination `json:"blocked,omitempty"`
	// More counts the destinations that are in neither list.
	More int `json:"more,omitempty"`
}

// OtherHosts stands for all destinations that are not kept individually.
const OtherHosts = "(others)"

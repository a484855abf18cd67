package sandbox

import (
	"net/netip"
	"time"
)

// A Connection is one attempt of a sandbox to reach something, or one question
// for an address.
type Connection struct {
	// Number counts a sandbox's connections as they end, from 1.
	Number   int64    `json:"number"`
	Protocol Protocol `json:"protocol"`
	// Host is the name that the sandbox had the address of, or asked for;
	// empty if there is none.
	Host    string     `json:"host,omitempty"`
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	// Blocked says why it was not allowed, or was ended; empty if it was.
	Blocked BlockReason `json:"blocked,omitempty"`
	// Sent and Received are bytes as the sandbox sees them.
	Sent     int64     `json:"sent_bytes"`
	Received int64     `json:"received_bytes"`
	Started  time.Time `json:"started_at"`
	Ended    time.Time `json:"ended_at"`
}

// A Protocol is how a connection was tried.
type Protocol string

// The protocols. ProtocolOther is everything that is neither TCP nor UDP: it is
// always blocked.
const (
	ProtocolTCP   Protocol = "tcp"
	ProtocolUDP   Protocol = "udp"
	ProtocolDNS   Protocol = "dns"
	ProtocolOther Protocol = "other"
)

// A BlockReason says why a connection was not allowed.
type BlockReason string

// The reasons.
const (
	BlockedPolicy      BlockReason = "not allowed"               // no rule allows it
	BlockedPrivate     BlockReason = "address is not public"     // and no rule names its range
	BlockedHost        BlockReason = "address is the host's own" // and no rule names it
	BlockedResolver    BlockReason = "another DNS server"        // on any port that is known
	BlockedServerName  BlockReason = "TLS server name"           // it is missing, or not what was resolved
	BlockedECH         BlockReason = "encrypted server name"     // so it cannot be known
	BlockedHTTPHost    BlockReason = "HTTP host"                 // it is missing, or not what was resolved
	BlockedOpaque      BlockReason = "neither TLS nor HTTP"      // and no rule names the port for it
	BlockedHeader      BlockReason = "header that the secret does not name"
	BlockedCertificate BlockReason = "certificate"          // of a host that a secret is for
	BlockedQUIC        BlockReason = "QUIC"                 // hides the server name
	BlockedQuestion    BlockReason = "kind of DNS question" // only for addresses
	BlockedLimit       BlockReason = "limit"                // on connections or bytes
	BlockedProtocol    BlockReason = "protocol"             // neither TCP nor UDP
	BlockedChange      BlockReason = "policy changed"       // while it was open
)

// A Destination is what a sandbox reached or tried to reach, and how much.
type Destination struct {
	Host        string      `json:"host"` // the name, or the address if there is none
	Port        uint16      `json:"port,omitempty"`
	Blocked     BlockReason `json:"blocked,omitempty"`
	Connections int64       `json:"connections"`
	Sent        int64       `json:"sent_bytes,omitempty"`
	Received    int64       `json:"received_bytes,omitempty"`
}

// Traffic is what a sandbox's network counted.
type Traffic struct {
	// Destinations are all since the sandbox began, in the order in which they
	// were first met. Beyond a bound they are counted as one with the host
	// [OtherHosts].
	Destinations []Destination `json:"destinations"`
	// Connections are the latest that ended, oldest first. Missing counts
	// those that were asked for and are not kept any more.
	Connections []Connection `json:"connections"`
	Missing     int64        `json:"missing,omitempty"`
}

// RunNetwork is what a run's sandbox reached while the run went on. What other
// runs did in it meanwhile is not told apart.
type RunNetwork struct {
	Reached []Destination `json:"reached,omitempty"`
	Blocked []Destination `json:"blocked,omitempty"`
	// More counts the destinations that are not among these.
	More int `json:"more,omitempty"`
}

// OtherHosts stands for the destinations beyond what is kept one by one.
const OtherHosts = "(others)"

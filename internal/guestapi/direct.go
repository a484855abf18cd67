package guestapi

// A DirectOrder asks a guest to listen for a server at an address of its container's
// network. The guest's command "direct" reads one as a line of JSON, and answers with a
// [DirectAnswer]. A later order replaces an earlier one.
type DirectOrder struct {
	// Address is where to listen: an IP address and a port.
	Address string `json:"address"`
	// Name is the DNS name in the guest's certificate.
	Name string `json:"name"`
	// Client is the certificate of the only client, in DER.
	Client []byte `json:"client"`
}

// A DirectAnswer is the answer to a [DirectOrder].
type DirectAnswer struct {
	// Certificate is the one that the guest shows, in DER.
	Certificate []byte `json:"certificate,omitempty"`
	// Error is why the guest does not listen; empty if it does.
	Error string `json:"error,omitempty"`
}

// MaxDirect bounds an order and an answer, in bytes.
const MaxDirect = 16 << 10

// The first byte of a connection to a listening guest, which says what it is for, and
// the byte with which the guest answers when the rest belongs to that.
const (
	DirectGuest   = 'g' // the protocol of the guest
	DirectPackets = 'p' // the packets of the sandbox
	DirectReady   = '.'
)

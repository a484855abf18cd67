package guestapi

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathListening answers a [ListeningRequest]. The path is ours, beyond E2B's
// protocol.
const PathListening = "/listening"

// MaxListening is how many ports an answer has at most. The lowest ones count.
const MaxListening = 64

// A ListeningRequest asks for the ports on which a process, or a descendant of it,
// listens for TCP connections.
type ListeningRequest struct {
	Process ProcessSelector `json:"process"`
}

// A ListeningResponse has the ports, in order.
type ListeningResponse struct {
	Ports []int `json:"ports"`
}

// Listening returns the ports on which a process, or a descendant of it, listens, in
// order. The error wraps [sandbox.NotFound] if there is no such process, and
// [sandbox.Unsupported] if the guest is of a version that cannot tell.
func (c *Client) Listening(ctx context.Context, sel ProcessSelector) ([]int, error) {
	var out ListeningResponse
	if err := c.call(ctx, "find ports of process", PathListening, "", &ListeningRequest{Process: sel}, &out); err != nil {
		return nil, err
	}
	slices.Sort(out.Ports)
	ports := slices.Compact(out.Ports)
	ports = ports[:min(len(ports), MaxListening)]
	if n := len(ports); n > 0 && (ports[0] < 1 || ports[n-1] > 65535) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "find ports of process: the guest named one that is none")
	}
	return ports, nil
}

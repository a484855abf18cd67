package traffic

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// maxRunHosts bounds the reached hosts in a run's result, and the blocked ones.
const maxRunHosts = 100

// Since returns the hosts that a sandbox reached between two readings.
func Since(before, after []sandbox.Destination) *sandbox.RunNetwork {
	type key struct {
		host    string
		port    uint16
		blocked sandbox.BlockReason
	}
	of := func(d sandbox.Destination) key { return key{d.Host, d.Port, d.Blocked} }
	old := map[key]sandbox.Destination{}
	for _, d := range before {
		old[of(d)] = d
	}
	var n sandbox.RunNetwork
	for _, d := range after {
		o := old[of(d)]
		d.Connections -= o.Connections
		d.Sent -= o.Sent
		d.Received -= o.Received
		if d.Connections <= 0 && d.Sent <= 0 && d.Received <= 0 {
			continue
		}
		// A connection that is open at the first count may be counted as
		// blocked at its end, under another key.
		d.Connections, d.Sent, d.Received = max(d.Connections, 0), max(d.Sent, 0), max(d.Received, 0)
		list := &n.Reached
		if d.Blocked != "" {
			list = &n.Blocked
		}
		if len(*list) == maxRunHosts {
			n.More++
			continue
		}
		*list = append(*list, d)
	}
	return &n
}

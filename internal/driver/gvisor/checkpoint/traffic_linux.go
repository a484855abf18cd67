package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// trafficFile has the counts of a box before it was saved: its network process has
// ended with it, and the next one counts from zero.
const trafficFile = "traffic.json"

// The bounds of what is kept of a box that is saved again and again. The engine has
// recorded earlier connections.
const (
	maxConnections  = 1000
	maxDestinations = 1000
)

// Traffic is what a box's former network processes counted.
type Traffic struct{ sandbox.Traffic }

// ReadTraffic returns the counts before the box in dir was saved.
func ReadTraffic(dir string) (Traffic, error) {
	var t Traffic
	data, err := os.ReadFile(filepath.Join(dir, trafficFile))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t.Traffic)
	}
	return t, err
}

// Keep stores the counts of the box in dir together with those of its present network
// process, which is about to end.
func (e Traffic) Keep(dir string, now sandbox.Traffic) error {
	sum := e.Plus(now, 0)
	if n := len(sum.Connections); n > maxConnections {
		sum.Connections = slices.Clone(sum.Connections[n-maxConnections:])
	}
	if len(sum.Destinations) > maxDestinations {
		others := sandbox.Destination{Host: sandbox.OtherHosts}
		for _, d := range sum.Destinations[maxDestinations-1:] {
			others.Connections, others.Sent, others.Received = others.Connections+d.Connections, others.Sent+d.Sent, others.Received+d.Received
		}
		sum.Destinations = append(sum.Destinations[:maxDestinations-1], others)
	}
	data, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(dir, trafficFile), data, 0o600)
}

// Last returns the number of the last connection.
func (e Traffic) Last() int64 {
	if n := len(e.Connections); n > 0 {
		return e.Connections[n-1].Number
	}
	return 0
}

// Plus adds the counts of the present network process, and returns the connections
// whose number is above after.
func (e Traffic) Plus(now sandbox.Traffic, after int64) *sandbox.Traffic {
	sum := sandbox.Traffic{Missing: now.Missing}
	type key struct {
		host    string
		port    uint16
		blocked sandbox.BlockReason
	}
	at := map[key]int{}
	for _, list := range [][]sandbox.Destination{e.Destinations, now.Destinations} {
		for _, d := range list {
			k := key{d.Host, d.Port, d.Blocked}
			i, known := at[k]
			if !known {
				at[k] = len(sum.Destinations)
				sum.Destinations = append(sum.Destinations, d)
				continue
			}
			s := &sum.Destinations[i]
			s.Connections, s.Sent, s.Received = s.Connections+d.Connections, s.Sent+d.Sent, s.Received+d.Received
		}
	}
	for _, c := range e.Connections {
		if c.Number > after {
			sum.Connections = append(sum.Connections, c)
		}
	}
	last := e.Last()
	for _, c := range now.Connections {
		if c.Number += last; c.Number > after {
			sum.Connections = append(sum.Connections, c)
		}
	}
	return &sum
}

package network

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the records of a sandbox's connections.
const (
	maxRecords      = 4096
	maxDestinations = 512
	// sameAgain is the time in which the same refusal is only counted. A program
	// that retries in a loop must not displace all other records.
	sameAgain = time.Second
)

// log records the destinations that a sandbox reached and the blocked
// connections.
type log struct {
	mu      sync.Mutex
	number  int64                // of the last record
	records []sandbox.Connection // the latest, oldest first
	total   map[destination]*counts
	order   []destination
	open    map[*flow]struct{}
}

type destination struct {
	host    string
	port    uint16
	blocked sandbox.BlockReason
}

type counts struct {
	connections, sent, received int64
	recorded                    time.Time // when the last refusal was recorded
}

func newLog() *log {
	return &log{total: map[destination]*counts{}, open: map[*flow]struct{}{}}
}

func destinationOf(c *sandbox.Connection) destination {
	d := destination{host: c.Host, port: c.Port, blocked: c.Blocked}
	if d.host == "" && c.Address.IsValid() {
		d.host = c.Address.String()
	}
	return d
}

// at returns the counts of a destination. The caller holds l.mu.
func (l *log) at(d destination) *counts {
	c := l.total[d]
	if c == nil && len(l.total) >= maxDestinations {
		d = destination{host: sandbox.OtherHosts, blocked: d.blocked}
		c = l.total[d]
	}
	if c == nil {
		c = &counts{}
		l.total[d] = c
		l.order = append(l.order, d)
	}
	return c
}

// block records a connection that was refused at once.
func (l *log) block(c sandbox.Connection) {
	c.Started = time.Now().UTC()
	c.Ended = c.Started
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.at(destinationOf(&c))
	n.connections++
	if c.Started.Sub(n.recorded) < sameAgain {
		return
	}
	n.recorded = c.Started
	l.record(c)
}

// record appends c to the records. The caller holds l.mu.
func (l *log) record(c sandbox.Connection) {
	l.number++
	c.Number = l.number
	if len(l.records) >= maxRecords {
		l.records = slices.Delete(l.records, 0, maxRecords/4)
	}
	l.records = append(l.records, c)
}

// begin adds f to the open flows. It returns false if most are open already.
func (l *log) begin(f *flow, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= most {
		return false
	}
	l.open[f] = struct{}{}
	return true
}

// end records f, which begin added.
func (l *log) end(f *flow) {
	c := f.connection()
	c.Ended = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[f]; !ok {
		return
	}
	delete(l.open, f)
	l.count(&c)
	l.record(c)
}

// count adds c to the counts of its destination. The caller holds l.mu.
func (l *log) count(c *sandbox.Connection) {
	n := l.at(destinationOf(c))
	n.connections++
	n.sent += c.Sent
	n.received += c.Received
}

// flows returns the open flows.
func (l *log) flows() []*flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*flow, 0, len(l.open))
	for f := range l.open {
		list = append(list, f)
	}
	return list
}

// traffic returns the counts, and the connections that ended after the connection
// with the number after.
func (l *log) traffic(after int64) sandbox.Traffic {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := sandbox.Traffic{}
	at := map[destination]int{}
	for _, d := range l.order {
		n := l.total[d]
		at[d] = len(t.Destinations)
		t.Destinations = append(t.Destinations, sandbox.Destination{
			Host: d.host, Port: d.port, Blocked: d.blocked,
			Connections: n.connections, Sent: n.sent, Received: n.received,
		})
	}
	// Open connections count, too, with their bytes so far.
	for f := range l.open {
		c := f.connection()
		d := destinationOf(&c)
		i, ok := at[d]
		if !ok && len(t.Destinations) < 2*maxDestinations {
			i, ok = len(t.Destinations), true
			at[d] = i
			t.Destinations = append(t.Destinations, sandbox.Destination{Host: d.host, Port: d.port})
		}
		if ok {
			t.Destinations[i].Connections++
			t.Destinations[i].Sent += c.Sent
			t.Destinations[i].Received += c.Received
		}
	}
	first, _ := slices.BinarySearchFunc(l.records, after+1, func(c sandbox.Connection, n int64) int { return cmp.Compare(c.Number, n) })
	t.Connections = slices.Clone(l.records[first:])
	if len(l.records) > 0 {
		t.Missing = max(0, l.records[0].Number-after-1)
	}
	return t
}

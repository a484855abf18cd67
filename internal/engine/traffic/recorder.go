package traffic

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// readTimeout bounds a reading.
const readTimeout = 5 * time.Second

// Records are the records of connections that a Recorder needs.
type Records interface {
	// LastConnection returns the number of the last recorded connection.
	LastConnection(ctx context.Context, sandboxID string) (int64, error)
	AddConnections(ctx context.Context, sandboxID string, list []sandbox.Connection) error
}

// Options configure a Recorder. All fields are required, except Metrics and Seen.
type Options struct {
	Records   Records
	Log       *slog.Logger
	Metrics   *metrics.Set
	ID        string // of the sandbox
	Principal sandbox.Principal
	Box       driver.Box
	// Seen, if not nil, is called with each connection that was recorded.
	Seen func(p sandbox.Principal, sandboxID string, c sandbox.Connection)
}

// A Recorder reads the traffic of one sandbox. A nil Recorder is that of a sandbox
// without a network.
type Recorder struct {
	opts Options

	mu    sync.Mutex
	known bool  // last was read from the records
	last  int64 // number of the last recorded connection
}

// New returns the recorder of a sandbox with a network.
func New(opts Options) *Recorder { return &Recorder{opts: opts} }

// Read returns the hosts that the sandbox has reached, and updates the record of
// its connections. ok is false if there are no counts. The end of ctx does not end
// a reading, because the record must not miss a connection.
func (r *Recorder) Read(ctx context.Context) (reached []sandbox.Destination, ok bool) {
	if r == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		n, err := r.opts.Records.LastConnection(ctx, r.opts.ID)
		if err != nil {
			r.opts.Log.Error("record connections", "sandbox", r.opts.ID, "error", err)
			return nil, false
		}
		r.last, r.known = n, true
	}
	t, ok, err := driver.ReadTraffic(ctx, r.opts.Box, r.last)
	if driver.IsGone(err) {
		return nil, false
	}
	if err != nil {
		r.opts.Log.Warn("read traffic", "sandbox", r.opts.ID, "error", err)
		return nil, false
	}
	if !ok {
		return nil, false
	}
	if t.Missing > 0 {
		r.opts.Log.Warn("connections were not recorded, because there were too many", "sandbox", r.opts.ID, "count", t.Missing)
	}
	r.recordLocked(ctx, t.Connections)
	return t.Destinations, true
}

// recordLocked records new connections. If that fails, they are read again next
// time. r.mu is held.
func (r *Recorder) recordLocked(ctx context.Context, list []sandbox.Connection) {
	if len(list) == 0 {
		return
	}
	if err := r.opts.Records.AddConnections(ctx, r.opts.ID, list); err != nil {
		r.opts.Log.Error("record connections", "sandbox", r.opts.ID, "error", err)
		return
	}
	for _, c := range list {
		r.opts.Log.Info("connection", "sandbox", r.opts.ID, "principal", r.opts.Principal, "protocol", c.Protocol, "host", c.Host,
			"address", c.Address, "port", c.Port, "blocked", c.Blocked, "sent", c.Sent, "received", c.Received)
		r.opts.Metrics.Connected(c)
		if r.opts.Seen != nil {
			r.opts.Seen(r.opts.Principal, r.opts.ID, c)
		}
	}
	r.last = list[len(list)-1].Number
}

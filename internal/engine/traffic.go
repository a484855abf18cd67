package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxRecorded bounds the connections on record for all sandboxes of one
// principal. The store has another bound for one sandbox.
const maxRecorded = 100_000

// trafficTimeout bounds a request for a sandbox's traffic.
const trafficTimeout = 5 * time.Second

// ReadTraffic returns the counts of the sandbox's network, and updates the record
// of its connections. ok is false if there are no counts.
func (b *liveSandbox) ReadTraffic(ctx context.Context) (_ []sandbox.Destination, ok bool) {
	if !b.networked {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trafficTimeout)
	defer cancel()
	b.recording.Lock()
	defer b.recording.Unlock()
	if !b.recordRead {
		n, err := b.e.store.LastConnection(ctx, b.id)
		if err != nil {
			b.e.log.Error("record connections", "sandbox", b.id, "error", err)
			return nil, false
		}
		b.lastConnection, b.recordRead = n, true
	}
	t, ok, err := driver.ReadTraffic(ctx, b.drv, b.lastConnection)
	if driver.IsGone(err) {
		return nil, false
	}
	if err != nil {
		b.e.log.Warn("read traffic", "sandbox", b.id, "error", err)
		return nil, false
	}
	if !ok {
		return nil, false
	}
	if t.Missing > 0 {
		b.e.log.Warn("connections were not recorded, because there were too many", "sandbox", b.id, "count", t.Missing)
	}
	if len(t.Connections) > 0 {
		if err := b.e.store.AddConnections(ctx, b.id, t.Connections); err != nil {
			b.e.log.Error("record connections", "sandbox", b.id, "error", err)
			return t.Destinations, true // they are read again next time
		}
		for _, c := range t.Connections {
			b.e.log.Info("connection", "sandbox", b.id, "principal", b.rec.Principal, "protocol", c.Protocol, "host", c.Host,
				"address", c.Address, "port", c.Port, "blocked", c.Blocked, "sent", c.Sent, "received", c.Received)
			b.e.opts.Metrics.Connected(c)
		}
		b.lastConnection = t.Connections[len(t.Connections)-1].Number
	}
	return t.Destinations, true
}

// Policy returns the present network policy of the sandbox.
func (b *liveSandbox) Policy() sandbox.Network {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Network
}

// Connections returns the latest connections of a principal's sandbox, oldest
// first. It returns at most limit, which is raised to 1 and lowered to 10000
// where it is outside of that range.
func (e *Engine) Connections(ctx context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Connection, error) {
	const op = "list connections"
	b, _, err := e.find(ctx, p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	if b != nil {
		b.ReadTraffic(ctx)
	}
	list, err := e.store.Connections(ctx, id, min(max(limit, 1), maxConnections))
	return list, sandbox.Wrap(err, op, id)
}

// maxConnections bounds the length of the list that Connections returns.
const maxConnections = 10000

// SetNetwork changes the network policy of a sandbox, within the operator's
// limits, and cuts connections that the new policy forbids. A sandbox that was
// made without a network cannot get one: the error wraps [sandbox.Unsupported].
func (e *Engine) SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	const op = "change network"
	if n == "" {
		return sandbox.Sandbox{}, sandbox.Wrap(request.Invalid("network: is empty"), op, "")
	}
	n, err := e.rules.CheckNetwork(n)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	release, err := b.use(ctx)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	defer release()
	if err := driver.SetNetwork(ctx, b.drv, n); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, id)
	}
	if err := e.store.SetNetwork(ctx, id, n); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, id)
	}
	b.mu.Lock()
	b.rec.Network = n
	b.mu.Unlock()
	e.log.Info("network changed", "sandbox", id, "principal", p, "network", n)
	return b.view(), nil
}

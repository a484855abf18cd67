package engine

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/traffic"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxRecorded bounds the connections on record for all sandboxes of one
// principal. The store has another bound for one sandbox.
const maxRecorded = 100_000

// newTraffic returns the recorder of the sandbox's traffic, or nil for a sandbox
// without a network.
func (b *liveSandbox) newTraffic() *traffic.Recorder {
	if b.rec.Network == sandbox.NetworkNone || b.rec.Network == "" {
		return nil
	}
	return traffic.New(traffic.Options{
		Records: b.e.store, Log: b.e.log, Metrics: b.e.opts.Metrics, ID: b.id, Principal: b.rec.Principal, Box: b.drv, Seen: b.e.opts.Connected,
	})
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
	if b != nil && b.started() {
		b.traffic.Read(ctx)
	}
	list, err := e.store.Connections(ctx, id, min(max(limit, 1), maxConnections))
	return list, sandbox.Wrap(err, op, id)
}

// maxConnections bounds the length of the list that Connections returns.
const maxConnections = 10000

// MaxPolicy returns the most permissive policy that the operator allows.
func (b *liveSandbox) MaxPolicy() sandbox.Network { return b.e.opts.MaxNetwork }

// AllowedNetwork returns what this server allows of a network policy: possibly
// nothing, which is [sandbox.NetworkNone].
func (e *Engine) AllowedNetwork(n sandbox.Network) sandbox.Network { return e.rules.AllowedNetwork(n) }

// CreateExcess returns the part of a request that is above this server's defaults. It
// fails for a request that Create would refuse by its form or the operator's maxima.
func (e *Engine) CreateExcess(req sandbox.CreateRequest) (sandbox.Excess, error) {
	return e.rules.CreateExcess(req)
}

// NetworkExcess does the same for SetNetwork. A policy that the sandbox has is no excess.
func (e *Engine) NetworkExcess(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Excess, error) {
	sb, err := e.Get(ctx, p, id)
	if err != nil {
		return sandbox.Excess{}, err
	}
	return e.rules.NetworkExcess(n, sb.Network)
}

// SetNetwork changes the network policy of a sandbox, within the operator's
// limits, and cuts connections that the new policy forbids. It does nothing if
// the sandbox has that policy. A sandbox that was made without a network cannot
// get one: the error wraps [sandbox.Unsupported].
func (e *Engine) SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	return e.SetNetworkRules(ctx, p, id, n, nil)
}

// SetNetworkRules changes the network policy as SetNetwork does, and replaces the
// header rules unless they are nil. The policy must allow their hosts. A sandbox
// that was made without secrets and header rules cannot get rules: the error wraps
// [sandbox.Unsupported].
func (e *Engine) SetNetworkRules(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network, rules []sandbox.Secret) (sandbox.Sandbox, error) {
	const op = "change network"
	if n == "" {
		return sandbox.Sandbox{}, sandbox.Wrap(request.Invalid("network: is empty"), op, "")
	}
	n, err := e.rules.CheckNetwork(n)
	if err == nil {
		_, err = request.AddHeaderRules(n, e.secretsOf(p, n), rules)
	}
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	if has := b.view(); has.Network == n && rules == nil {
		return has, nil
	}
	release, err := b.use(ctx) // the sandbox has started
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	defer release()
	b.changing.Lock() // the last policy is in the store, and its authority in the sandbox
	defer b.changing.Unlock()
	if b.traffic == nil {
		if n == sandbox.NetworkNone && len(rules) == 0 {
			return b.view(), nil
		}
		return sandbox.Sandbox{}, sandbox.Wrap(driver.NoNetwork(), op, id)
	}
	if err := driver.SetNetwork(ctx, b.drv, n, rules); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, id)
	}
	if err := e.store.SetNetwork(ctx, id, n); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, id)
	}
	b.mu.Lock()
	b.rec.Network = n
	b.mu.Unlock()
	if err := b.installAuthority(ctx, rules); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, id)
	}
	e.log.Info("network changed", "sandbox", id, "principal", p, "network", n, "header_rules", len(rules))
	return b.view(), nil
}

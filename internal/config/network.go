package config

import (
	"fmt"
	"net/netip"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Network configures the network of sandboxes.
type Network struct {
	// Allow is the largest network policy that a caller may ask for, as rules of
	// [sandbox.ParseNetwork] that deny nothing. Empty is no network at all.
	Allow []string `yaml:"allow"`
	// Default is the network policy of a sandbox whose creator asks for none. It
	// must lie within Allow.
	Default []string `yaml:"default"`
	// Resolver is the DNS server of sandboxes, as address:port; empty is this
	// machine's.
	Resolver string `yaml:"resolver"`
	// Rate limits the bytes per second that one sandbox sends, and separately
	// those that it receives. Total limits the sum of both over its life. Zero
	// is no limit.
	Rate  Bytes `yaml:"rate"`
	Total Bytes `yaml:"total"`
	// Connections limits the concurrent connections of one sandbox.
	Connections int `yaml:"connections"`
}

func defaultNetwork() Network {
	return Network{Connections: 512}
}

// maxConnections is the number of connections for which a sandbox's network
// process has file descriptors.
const maxConnections = 16 << 10

func (n *Network) validate() error {
	allow, err := sandbox.ParseNetwork(n.Allow...)
	if err == nil {
		err = allow.CheckAllows()
	}
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "configuration: network.allow: %w", err), "%s", sandbox.HintOf(err))
	}
	asked, err := sandbox.ParseNetwork(n.Default...)
	if err == nil {
		err = asked.Within(allow)
	}
	if err != nil {
		return invalid("network.default", err.Error(), "use rules within network.allow")
	}
	if n.Resolver != "" {
		if _, err := netip.ParseAddrPort(n.Resolver); err != nil {
			return invalid("network.resolver", fmt.Sprintf("%q is not address:port", n.Resolver), "write it like 192.0.2.53:53")
		}
	}
	if n.Connections < 1 || n.Connections > maxConnections {
		return invalid("network.connections", fmt.Sprintf("%d is not between 1 and %d", n.Connections, maxConnections), "write it like 512")
	}
	return nil
}

// Most returns the largest network policy that callers may ask for. The
// configuration must be valid.
func (n *Network) Most() sandbox.Network { return policy(n.Allow) }

// Asked returns the network policy of sandboxes whose creator asks for none.
func (n *Network) Asked() sandbox.Network { return policy(n.Default) }

// policy parses rules that validate has checked.
func policy(items []string) sandbox.Network {
	p, err := sandbox.ParseNetwork(items...)
	if err != nil || p == "" {
		return sandbox.NetworkNone
	}
	return p
}

// Terms returns the network terms of every sandbox.
func (n *Network) Terms() sandbox.NetworkTerms {
	return sandbox.NetworkTerms{
		Reachable:      n.Most().Ranges(),
		Resolver:       n.Resolver,
		BytesPerSecond: int64(n.Rate),
		Bytes:          int64(n.Total),
		Connections:    n.Connections,
	}
}

package config

import (
	"fmt"
	"net/netip"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Network says what sandboxes may reach, and on what terms.
type Network struct {
	// Allow is the most that a caller may ask for, as
	// [sandbox.ParseNetwork] reads it. Empty is no network at all.
	Allow []string `yaml:"allow"`
	// Default is what a sandbox gets whose creator does not ask; it lies
	// within Allow.
	Default []string `yaml:"default"`
	// Resolver is the DNS server that answers for sandboxes, as address:port;
	// empty is as this machine does it.
	Resolver string `yaml:"resolver"`
	// Rate bounds what one sandbox sends, and what it receives, in a second;
	// Total both together in its life. Zero is no bound.
	Rate  Bytes `yaml:"rate"`
	Total Bytes `yaml:"total"`
	// Connections bounds those of one sandbox at one time.
	Connections int `yaml:"connections"`
}

func defaultNetwork() Network {
	return Network{Connections: 512}
}

// maxConnections is what the process of one sandbox's network has descriptors
// for.
const maxConnections = 16 << 10

func (n *Network) validate() error {
	allow, err := sandbox.ParseNetwork(n.Allow...)
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "configuration: network.allow: %w", err), "%s", sandbox.HintOf(err))
	}
	asked, err := sandbox.ParseNetwork(n.Default...)
	if err == nil {
		err = asked.Within(allow)
	}
	if err != nil {
		return invalid("network.default", err.Error(), "it must lie within network.allow")
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

// Most returns the most that callers may ask for. The configuration is valid.
func (n *Network) Most() sandbox.Network { return policy(n.Allow) }

// Asked returns what sandboxes get whose creator does not ask.
func (n *Network) Asked() sandbox.Network { return policy(n.Default) }

// policy reads what validate has read before.
func policy(items []string) sandbox.Network {
	p, err := sandbox.ParseNetwork(items...)
	if err != nil || p == "" {
		return sandbox.NetworkNone
	}
	return p
}

// Terms returns the terms for every sandbox.
func (n *Network) Terms() sandbox.NetworkTerms {
	return sandbox.NetworkTerms{
		Reachable:      n.Most().Ranges(),
		Resolver:       n.Resolver,
		BytesPerSecond: int64(n.Rate),
		Bytes:          int64(n.Total),
		Connections:    n.Connections,
	}
}

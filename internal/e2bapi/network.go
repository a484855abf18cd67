package e2bapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// networkConfig is E2B's network policy. Glovebox supports only a list of allowed
// destinations, with everything else denied, or no restriction.
type networkConfig struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`

	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string          `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int           `json:"httpsPorts,omitempty"`
	EgressProxy        json.RawMessage `json:"egressProxy,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
}

// all is E2B's notation for all destinations.
const all = "0.0.0.0/0"

// networkOf returns the network policy for a request; "" is the server's default.
// In E2B's policy everything is allowed that is not denied. allowOut only lists
// exceptions from denyOut.
func networkOf(internet *bool, c *networkConfig) (sandbox.Network, error) {
	if c == nil {
		c = &networkConfig{}
	}
	unsupported := func(what string) (sandbox.Network, error) {
		return "", sandbox.Errorf(sandbox.Unsupported, "network: %s", what)
	}
	switch {
	case c.AllowPublicTraffic != nil && *c.AllowPublicTraffic:
		return unsupported("allowPublicTraffic: ports of sandboxes are not served to everybody")
	case c.MaskRequestHost != "", len(c.HTTPSPorts) > 0:
		return unsupported("maskRequestHost and httpsPorts: programs are asked at localhost, by HTTP")
	case len(c.EgressProxy) > 0 && string(c.EgressProxy) != "null":
		return unsupported("egressProxy: there are no proxies for sandboxes")
	case len(c.Rules) > 0 && string(c.Rules) != "null" && string(c.Rules) != "{}":
		return unsupported("rules: what sandboxes send is not changed on its way")
	}
	denied := internet != nil && !*internet || slices.Contains(c.DenyOut, all)
	switch {
	case slices.Contains(c.AllowOut, all):
		return sandbox.NetworkInternet, nil
	case denied && len(c.AllowOut) == 0:
		return sandbox.NetworkNone, nil
	case denied:
		return sandbox.ParseNetwork(c.AllowOut...)
	case len(c.DenyOut) > 0:
		return unsupported("denyOut: only " + all + " can be denied, with what is allowed all the same in allowOut")
	case internet != nil:
		return sandbox.NetworkInternet, nil
	}
	return "", nil
}

// setNetwork replaces the network policy of a sandbox that has a network.
func (s *Server) setNetwork(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		networkConfig
		Internet *bool `json:"allow_internet_access"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	n, err := networkOf(in.Internet, &in.networkConfig)
	if err != nil {
		return 0, nil, err
	}
	if n == "" { // nothing is denied
		n = sandbox.NetworkInternet
	}
	if _, err := s.get(r, p); err != nil {
		return 0, nil, err
	}
	_, err = s.opts.Engine.SetNetwork(r.Context(), p, idOf(r), n)
	return http.StatusNoContent, nil, s.gone(r, p, err)
}

// networkInfo converts a network policy to E2B's format.
func networkInfo(n sandbox.Network) (internet bool, c *networkConfig) {
	c = &networkConfig{DenyOut: []string{all}}
	for _, r := range n.Rules() {
		if r.Internet && r.Port == 0 {
			return true, &networkConfig{}
		}
		c.AllowOut = append(c.AllowOut, r.String())
	}
	return false, c
}

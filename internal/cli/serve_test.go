package cli

import (
	"net"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/config"
)

// TestE2BAddress: the variables that a server prints lead E2B's SDKs to it. With a
// domain, no certificate covers the address that the server listens on.
func TestE2BAddress(t *testing.T) {
	own := &net.TCPAddr{IP: net.IPv4zero, Port: 3000}
	const base = "https://box.example.com"
	for _, c := range []struct {
		server         config.Server
		own            net.Addr
		url, variables string
	}{
		{config.Server{}, nil, base + "/e2b", "E2B_API_URL=" + base + "/e2b E2B_SANDBOX_URL=" + base + "/e2b E2B_VOLUME_API_URL=" + base + "/e2b"},
		{config.Server{E2BDomain: "e2b.test"}, nil, base + "/e2b", "E2B_API_URL=" + base + "/e2b E2B_SANDBOX_URL=" + base + "/e2b E2B_VOLUME_API_URL=" + base + "/e2b"},
		{config.Server{}, own, "http://127.0.0.1:3000", "E2B_API_URL=http://127.0.0.1:3000 E2B_SANDBOX_URL=http://127.0.0.1:3000 E2B_VOLUME_API_URL=http://127.0.0.1:3000"},
		{config.Server{TLSCert: "c"}, own, "https://127.0.0.1:3000", "E2B_API_URL=https://127.0.0.1:3000 E2B_SANDBOX_URL=https://127.0.0.1:3000 E2B_VOLUME_API_URL=https://127.0.0.1:3000"},
		{config.Server{E2BDomain: "e2b.test"}, own, "https://api.e2b.test", "E2B_DOMAIN=e2b.test"},
		{config.Server{E2BDomain: "e2b.test", TLSCert: "c"}, own, "https://api.e2b.test", "E2B_DOMAIN=e2b.test"},
	} {
		url, variables := e2bAddress(c.server, base, c.own)
		if url != c.url || variables != c.variables {
			t.Errorf("%+v, %v: %s, %s; want %s, %s", c.server, c.own, url, variables, c.url, c.variables)
		}
	}
}

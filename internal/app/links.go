package app

import (
	"net"
	"net/netip"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
)

// files returns the files of a server at that URL.
func (s *System) files(base string) *files {
	signer := httpserver.NewFileSigner(s.Engine, auth.Signer{Key: s.workspaces.Key("signed URLs")}, base)
	return &files{s.Engine, signer, s.store}
}

// portsAt returns ports at a server's URL, with host names below the configured
// domain.
func (s *System) portsAt(base, domain string) *ports {
	signer := auth.Signer{Key: s.workspaces.Key("links to ports")}
	return &ports{s.Engine, httpserver.NewPortSigner(s.Engine, signer, base, domain)}
}

// localPorts returns ports on a loopback address, which are not served yet.
func (s *System) localPorts() *localPorts {
	return &localPorts{server: func(addr string) (*ports, *httpserver.Server, error) {
		domain := s.opts.Config.Server.PreviewDomain
		if domain != httpserver.NoPreviewDomain {
			domain = "" // the configured domain is for the HTTP server
		}
		p := s.portsAt("http://"+addr, domain)
		front, err := httpserver.New(httpserver.Options{
			Listen: addr, Auth: s.auth, Log: s.log, Ports: p, PreviewDomain: p.Domain(),
			RequestsPerSecond: s.opts.Config.Server.RateLimit,
		})
		return p, front, err
	}}
}

// fileBase returns the URL at which clients reach a server that listens at addr:
// the configured URL, or a guess.
func (s *System) fileBase(addr net.Addr) string {
	c := s.opts.Config.Server
	if c.PublicURL != "" {
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

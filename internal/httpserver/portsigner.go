package httpserver

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Sandboxes are the sandboxes whose ports a [PortSigner] signs URLs of. The
// engine implements it.
type Sandboxes interface {
	// Check returns a principal's sandbox. It asks the driver whether the sandbox
	// lives.
	Check(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
}

// A PortSigner signs URLs of ports, which a server with [Ports] serves.
type PortSigner struct {
	sandboxes Sandboxes
	signer    auth.Signer
	base      *url.URL // of the server
	domain    string   // parent domain of the ports' host names; "" if they have none
}

// NoPreviewDomain is the configured domain with which ports have no host names.
const NoPreviewDomain = "none"

// NewPortSigner returns a signer for the ports of a server with that URL. The
// ports have host names below domain. If domain is empty, a server on a loopback
// address gives them names below localhost.
func NewPortSigner(s Sandboxes, signer auth.Signer, base, domain string) *PortSigner {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil {
		u = &url.URL{Scheme: "http", Host: "localhost"} // the configuration's check has refused it
	}
	p := &PortSigner{sandboxes: s, signer: signer, base: u}
	host := u.Hostname()
	switch {
	case domain == NoPreviewDomain:
	case domain != "":
		p.domain = domain
	case host == "localhost" || net.ParseIP(host).IsLoopback():
		p.domain = "localhost" // browsers resolve *.localhost without a query
	}
	return p
}

// Domain returns the parent domain of the ports' host names, or "".
func (s *PortSigner) Domain() string { return s.domain }

// VerifyPort checks a link to a port, as [Ports] requires it.
func (s *PortSigner) VerifyPort(id string, port int, link string) (expires time.Time, err error) {
	return s.signer.VerifyPort(id, port, link)
}

// PortURL returns a URL to a port of a principal's sandbox. It is valid for the
// time good, for every client that has it. The error wraps [sandbox.Invalid] if
// port or good is out of range.
func (s *PortSigner) PortURL(ctx context.Context, p sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	if port < 1 || port > 65535 {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "port: %d is not between 1 and 65535", port)
	}
	expires, err := s.signer.Expiry(good)
	if err != nil {
		return "", time.Time{}, err
	}
	sb, err := s.sandboxes.Check(ctx, p, id)
	if err != nil {
		return "", time.Time{}, err
	}
	if sb.State == sandbox.Stopped {
		return "", time.Time{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has stopped: %s", id, sb.Cause)
	}
	expires = expires.Truncate(time.Second)
	link := s.signer.SignPort(id, port, expires)
	u := *s.base
	if s.domain == "" {
		u.Path += portsPath + id + "/" + strconv.Itoa(port) + "." + link + "/"
		return u.String(), expires, nil
	}
	u.Host = strconv.Itoa(port) + "-" + sandbox.HostID(id) + "." + s.domain
	if own := s.base.Port(); own != "" {
		u.Host = net.JoinHostPort(u.Host, own)
	}
	u.Path, u.RawQuery = "/", preview.LinkCookie+"="+link
	return u.String(), expires, nil
}

package app

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ports puts together what showing ports over HTTP takes: the engine connects to
// them, and auth signs for them.
type ports struct {
	*engine.Engine
	signer auth.Signer
	base   *url.URL // of the server
	domain string   // below which ports have hosts' names; "" if they have none
}

var _ httpserver.Ports = (*ports)(nil)

func (s *System) portsAt(base string) *ports {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil {
		u = &url.URL{Scheme: "http", Host: "localhost"} // it was checked with the configuration
	}
	p := &ports{Engine: s.Engine, signer: auth.Signer{Key: s.workspaces.Key("links to ports")}, base: u}
	p.domain = s.opts.Config.Server.PreviewDomain
	switch p.domain {
	case "none":
		p.domain = ""
	case "":
		// Browsers know what is below localhost without asking anybody.
		if host := u.Hostname(); host == "localhost" || net.ParseIP(host).IsLoopback() {
			p.domain = "localhost"
		}
	}
	return p
}

// VerifyPort implements [httpserver.Ports].
func (p *ports) VerifyPort(id string, port int, link string) (time.Time, error) {
	return p.signer.VerifyPort(id, port, link)
}

// PortURL returns a URL by which whoever has it reaches a port of a principal's
// sandbox for a while.
func (p *ports) PortURL(ctx context.Context, who sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	if port < 1 || port > 65535 {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "port: %d is not between 1 and 65535", port)
	}
	if good <= 0 || good > auth.MaxSigned {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "expires_seconds: %v is not between a second and %v", good, auth.MaxSigned)
	}
	sb, err := p.Get(ctx, who, id)
	if err != nil {
		return "", time.Time{}, err
	}
	if sb.State == sandbox.Stopped {
		return "", time.Time{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has stopped: %s", id, sb.Cause)
	}
	expires := time.Now().Add(good).Truncate(time.Second)
	link := p.signer.SignPort(id, port, expires)
	u := *p.base
	if p.domain == "" {
		u.Path += "/ports/" + id + "/" + strconv.Itoa(port) + "." + link + "/"
		return u.String(), expires, nil
	}
	u.Host = strconv.Itoa(port) + "-" + id + "." + p.domain
	if own := p.base.Port(); own != "" {
		u.Host = net.JoinHostPort(u.Host, own)
	}
	u.Path, u.RawQuery = "/", preview.LinkCookie+"="+link
	return u.String(), expires, nil
}

package app

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ports implements the ports over HTTP: the engine connects to them, and auth
// signs URLs.
type ports struct {
	*engine.Engine
	signer auth.Signer
	base   *url.URL // of the server
	domain string   // parent domain of the ports' host names; "" if they have none
}

var _ httpserver.Ports = (*ports)(nil)

// portsAt returns ports at a server's URL, with host names below the configured
// domain.
func (s *System) portsAt(base, domain string) *ports {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil {
		u = &url.URL{Scheme: "http", Host: "localhost"} // the configuration's check has refused it
	}
	p := &ports{Engine: s.Engine, signer: auth.Signer{Key: s.workspaces.Key("links to ports")}, base: u}
	host := u.Hostname()
	switch {
	case domain == "none":
	case domain != "":
		p.domain = domain
	case host == "localhost" || net.ParseIP(host).IsLoopback():
		p.domain = "localhost" // browsers resolve *.localhost without a query
	}
	return p
}

// VerifyPort implements [httpserver.Ports].
func (p *ports) VerifyPort(id string, port int, link string) (time.Time, error) {
	return p.signer.VerifyPort(id, port, link)
}

// PortURL returns a URL to a port of a principal's sandbox. It is valid for the
// time good, for every client that has it. The error wraps [sandbox.Invalid] if
// port or good is out of range.
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

// localPorts serves ports on a loopback address, for a client on stdio. It
// starts to listen at the first request for a URL.
type localPorts struct {
	sys *System

	mu     sync.Mutex
	ports  *ports // nil until the first request
	cancel context.CancelFunc
	served chan error
}

// PortURL is like that method of ports.
func (l *localPorts) PortURL(ctx context.Context, who sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	p, err := l.start(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	return p.PortURL(ctx, who, id, port, good)
}

func (l *localPorts) start(ctx context.Context) (*ports, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ports != nil {
		return l.ports, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "show ports: %w", err)
	}
	domain := l.sys.opts.Config.Server.PreviewDomain
	if domain != "none" {
		domain = "" // the configured domain is for the HTTP server
	}
	p := l.sys.portsAt("http://"+ln.Addr().String(), domain)
	front, err := httpserver.New(httpserver.Options{
		Listen: ln.Addr().String(), Auth: l.sys.auth, Log: l.sys.log, Ports: p, PreviewDomain: p.domain,
		RequestsPerSecond: l.sys.opts.Config.Server.RateLimit,
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	serve, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.ports, l.cancel, l.served = p, cancel, make(chan error, 1)
	go func() { l.served <- front.Serve(serve, ln) }()
	return p, nil
}

// close stops the server, if it was started.
func (l *localPorts) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ports == nil {
		return nil
	}
	l.cancel()
	return <-l.served
}

package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A guard refuses requests that a foreign web page made a browser send. These
// have the name of another host (DNS rebinding) or a foreign origin.
type guard struct {
	hosts   []string // "name", "name:port", "*.domain" or "*", lower case
	origins []string // "scheme://name[:port]" or "*", lower case
}

func newGuard(o Options) (*guard, error) {
	g := &guard{}
	for _, h := range o.AllowHosts {
		if h == "" || strings.ContainsAny(h, "/ @") {
			return nil, sandbox.Errorf(sandbox.Invalid, "allow_hosts: %q is not a host or host:port", h)
		}
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	for _, origin := range o.AllowOrigins {
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != strings.TrimSuffix(origin, "/")) {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "allow_origins: %q is not an origin", origin),
				"write it like https://app.example.com")
		}
		g.origins = append(g.origins, strings.ToLower(strings.TrimSuffix(origin, "/")))
	}
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && host != "" {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.IsUnspecified() {
			g.hosts = append(g.hosts, strings.ToLower(host))
		}
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "public URL: %q is not a URL", o.PublicURL)
		}
		g.hosts = append(g.hosts, strings.ToLower(u.Host))
	}
	return g, nil
}

// hostname takes the port, if there is one, off a Host header.
func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// allowsHost reports whether a Host header names this server.
func (g *guard) allowsHost(header string) bool {
	header = strings.ToLower(header)
	name := hostname(header)
	return sandbox.IsLoopback(name) || slices.ContainsFunc(g.hosts, func(h string) bool {
		domain, below := strings.CutPrefix(h, "*")
		return h == header || h == name || below && (domain == "" || strings.HasPrefix(domain, ".") && strings.HasSuffix(name, domain))
	})
}

// allowsOrigin reports whether a page of that origin may send requests to this
// server. host is the request's Host header.
func (g *guard) allowsOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Scheme+"://"+u.Host != origin {
		return false // also for "null"
	}
	if sandbox.IsLoopback(u.Hostname()) || strings.EqualFold(u.Host, host) {
		return true
	}
	origin = strings.ToLower(origin)
	return slices.ContainsFunc(g.origins, func(o string) bool { return o == "*" || o == origin })
}

func (g *guard) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.allowsHost(r.Host) {
			refuse(w, http.StatusForbidden, "forbidden", "the Host header does not name this server",
				"start the server with --allow-host and the name that clients use")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkOrigin checks the Origin header, and answers CORS preflight requests.
func (g *guard) checkOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origins := r.Header.Values("Origin")
		if len(origins) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if len(origins) > 1 || !g.allowsOrigin(origins[0], r.Host) {
			refuse(w, http.StatusForbidden, "forbidden", "pages of this origin may not use this server",
				"start the server with --allow-origin and this origin")
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origins[0])
		h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, Retry-After")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
			if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
				h.Set("Access-Control-Allow-Headers", asked)
			}
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

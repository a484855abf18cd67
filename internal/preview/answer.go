package preview

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// sharedHeaders are all that a browser gets of an answer where pages share a
// host's name, beside those that begin with X-: others could set cookies for
// everybody, send browsers elsewhere, or report what they do.
var sharedHeaders = map[string]bool{
	"Accept-Ranges": true, "Age": true, "Allow": true, "Cache-Control": true, "Content-Disposition": true,
	"Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true,
	"Content-Security-Policy": true, "Content-Type": true, "Date": true, "Etag": true, "Expires": true,
	"Last-Modified": true, "Location": true, "Retry-After": true, "Server": true, "Vary": true,
	// Of WebSockets.
	"Connection": true, "Upgrade": true, "Sec-Websocket-Accept": true, "Sec-Websocket-Extensions": true, "Sec-Websocket-Protocol": true,
}

// notPassed are headers of an answer that would say something of the server, not
// of the page, or of neighbours of its host's name, or are orders to a proxy
// before the server.
var notPassed = map[string]bool{
	"Alt-Svc": true, "Clear-Site-Data": true, "Nel": true, "Proxy-Authenticate": true, "Public-Key-Pins": true,
	"Strict-Transport-Security": true, "X-Sendfile": true, "X-Lighttpd-Send-File": true, "X-Reproxy-Url": true,
}

// passes reports whether a header of the program's answer is passed on.
func (t *Target) passes(name string) bool {
	if notPassed[name] || strings.HasPrefix(name, "X-Accel-") {
		return false
	}
	return !t.shared() || sharedHeaders[name] || strings.HasPrefix(name, "X-")
}

// adapt makes of the program's answer to r one that does nothing in a browser in
// the server's name, or in that of another sandbox.
func (t *Target) adapt(resp *http.Response, r *http.Request) error {
	if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		return sandbox.Errorf(sandbox.Unavailable, "status %d", resp.StatusCode)
	}
	h := resp.Header
	resp.Trailer = nil // so that none are announced
	for name := range h {
		if !t.passes(name) {
			h.Del(name)
		}
	}
	keepCookies(h)
	if location := h.Get("Location"); location != "" {
		h.Set("Location", t.relocate(location))
	}
	t.protect(h, r)
	return nil
}

// protect adds what a browser is told of the page.
func (t *Target) protect(h http.Header, r *http.Request) {
	// Each header's policies hold together with those of the program's own.
	if policy := t.policy(r.Host); policy != "" {
		h.Add("Content-Security-Policy", policy)
	}
	h.Set("X-Robots-Tag", "noindex")
	if t.shared() {
		h.Set("Referrer-Policy", "no-referrer")
		h.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin == "" || origin == "null" {
			// So are its own requests. Whoever sends them has the link.
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", "*")
		}
		return
	}
	h.Set("Referrer-Policy", cmp.Or(h.Get("Referrer-Policy"), "same-origin"))
	h.Set("Cross-Origin-Resource-Policy", cmp.Or(h.Get("Cross-Origin-Resource-Policy"), "same-origin"))
}

// sandboxed is what a page may do that shares its host's name. Without
// allow-same-origin it belongs to no origin.
const sandboxed = "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts; "

// policy returns the Content-Security-Policy of the page: it reaches what its
// sandbox may, and itself.
func (t *Target) policy(host string) string {
	var p string
	if t.shared() {
		p = sandboxed
	}
	others, all := sources(t.Network)
	if all {
		return strings.TrimSuffix(p, "; ")
	}
	return p + "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:" + others +
		"; connect-src 'self' data: blob: ws://" + host + " wss://" + host + others +
		"; form-action 'self'" + others + "; base-uri 'self'"
}

// sources returns a network's rules as a policy of pages has them, which knows
// no ranges of addresses; all reports that it allows everything.
func sources(n sandbox.Network) (list string, all bool) {
	var b strings.Builder
	for _, r := range n.Rules() {
		source := r.Host
		switch {
		case r.Internet && r.Port == 0:
			return "", true
		case r.Internet:
			source = "*"
		case r.Below:
			source = "*." + r.Host
		case r.Host == "":
			continue
		}
		if r.Port != 0 {
			source += ":" + strconv.Itoa(int(r.Port))
		}
		b.WriteString(" " + source)
	}
	return b.String(), false
}

// relocate returns where a redirect of the program leads for who sees it.
func (t *Target) relocate(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return location
	}
	if u.Host != "" {
		name, port := u.Hostname(), cmp.Or(u.Port(), "80")
		ip := net.ParseIP(name)
		if port != strconv.Itoa(t.Port) || name != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified()) {
			return location
		}
		u.Scheme, u.Host, u.User = "", "", nil
		u.Path = cmp.Or(u.Path, "/")
	}
	if u.Scheme != "" || !strings.HasPrefix(u.Path, "/") {
		return u.String()
	}
	// Two slashes would be a host's name.
	tail := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	return t.Prefix + "/" + strings.TrimLeft(u.EscapedPath(), "/") + tail.String()
}

// keepCookies keeps the cookies that a page sets to its own host's name, and its
// hands off ours.
func keepCookies(h http.Header) {
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		var kept []string
		for i, part := range strings.Split(line, ";") {
			name, _, _ := strings.Cut(part, "=")
			name = strings.TrimSpace(name)
			if i == 0 && name == LinkCookie {
				break
			}
			if i > 0 && strings.EqualFold(name, "domain") {
				continue
			}
			kept = append(kept, part)
		}
		if len(kept) > 0 {
			h.Add("Set-Cookie", strings.Join(kept, ";"))
		}
	}
}

// preflight answers a browser's question about what a page without an origin may
// send to itself, and reports whether it was one.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

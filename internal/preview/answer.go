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

// sharedHeaders are the only headers of an answer, besides X- headers, that a
// page on a shared host name gets. Others could set cookies for all pages of the
// host name, redirect browsers, or make them send reports.
var sharedHeaders = map[string]bool{
	"Accept-Ranges": true, "Age": true, "Allow": true, "Cache-Control": true, "Content-Disposition": true,
	"Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true,
	"Content-Security-Policy": true, "Content-Type": true, "Date": true, "Etag": true, "Expires": true,
	"Last-Modified": true, "Location": true, "Retry-After": true, "Server": true, "Vary": true,
	// These are for WebSockets.
	"Connection": true, "Upgrade": true, "Sec-Websocket-Accept": true, "Sec-Websocket-Extensions": true, "Sec-Websocket-Protocol": true,
}

// notPassed are headers that are never forwarded. They apply to the whole server
// or to other pages on its host name. Some are commands for a proxy in front of
// the server.
var notPassed = map[string]bool{
	"Alt-Svc": true, "Clear-Site-Data": true, "Nel": true, "Proxy-Authenticate": true, "Public-Key-Pins": true,
	"Strict-Transport-Security": true, "X-Sendfile": true, "X-Lighttpd-Send-File": true, "X-Reproxy-Url": true,
}

// passes reports whether a header of the program's answer is forwarded.
func (t *Target) passes(name string) bool {
	if notPassed[name] || strings.HasPrefix(name, "X-Accel-") {
		return false
	}
	return !t.shared() || sharedHeaders[name] || strings.HasPrefix(name, "X-")
}

// adapt changes the program's answer to r. In a browser, the answer must not act
// for the server or for another sandbox.
func (t *Target) adapt(resp *http.Response, r *http.Request) error {
	if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		return sandbox.Errorf(sandbox.Unavailable, "status %d", resp.StatusCode)
	}
	h := resp.Header
	resp.Trailer = nil // do not announce trailers
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

// protect adds the headers with security policies for browsers.
func (t *Target) protect(h http.Header, r *http.Request) {
	// A browser enforces this policy in addition to the program's own.
	if policy := t.policy(r.Host); policy != "" {
		h.Add("Content-Security-Policy", policy)
	}
	h.Set("X-Robots-Tag", "noindex")
	if t.shared() {
		h.Set("Referrer-Policy", "no-referrer")
		h.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin == "" || origin == "null" {
			// The page has no origin, so its own requests have Origin null. Allow
			// them: the sender has the link.
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", "*")
		}
		return
	}
	h.Set("Referrer-Policy", cmp.Or(h.Get("Referrer-Policy"), "same-origin"))
	h.Set("Cross-Origin-Resource-Policy", cmp.Or(h.Get("Cross-Origin-Resource-Policy"), "same-origin"))
}

// sandboxed is the sandbox directive for pages on a shared host name. Without
// allow-same-origin, the page has no origin.
const sandboxed = "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts; "

// plain is the sandbox directive for pages at the host name of a sign-in page.
const plain = "sandbox allow-downloads; "

// policy returns the Content-Security-Policy of the page. The page may access
// itself and the destinations of the sandbox's network policy.
func (t *Target) policy(host string) string {
	var p string
	switch {
	case t.shared() && t.Plain:
		p = plain
	case t.shared():
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

// sources converts a network policy for a Content-Security-Policy. It omits
// ranges of addresses, allowed and denied, which that has no notation for. all reports that the
// policy allows everything.
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

// relocate converts the target of the program's redirect for the browser.
func (t *Target) relocate(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return location
	}
	if u.Host != "" {
		name, port := u.Hostname(), cmp.Or(u.Port(), "80")
		ip := net.ParseIP(name)
		if u.Host != t.host() && (port != strconv.Itoa(t.Port) || name != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified())) {
			return location
		}
		u.Scheme, u.Host, u.User = "", "", nil
		u.Path = cmp.Or(u.Path, "/")
	}
	if u.Scheme != "" || !strings.HasPrefix(u.Path, "/") {
		return u.String()
	}
	// A path with two leading slashes would be a host name.
	tail := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
	return t.Prefix + "/" + strings.TrimLeft(u.EscapedPath(), "/") + tail.String()
}

// keepCookies restricts a page's cookies to the page's own host name, and removes
// any cookie that would replace the link.
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

// preflight answers a CORS preflight request of a page without an origin to
// itself. It returns false for other requests.
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

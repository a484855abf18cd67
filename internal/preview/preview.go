// Package preview gives browsers access to the program on a port of a sandbox. It
// forwards requests, including WebSockets. It changes the answers such that a
// page cannot act for the server or for another sandbox.
//
// The edges that speak HTTP (httpserver, e2bapi) import it. They decide who may
// access which port; [Serve] then serves one request. Both sides are untrusted:
// the program in the sandbox may answer anything, and the page runs in a person's
// browser.
//
// Each request has its own connection to the program. So bytes that an earlier
// request left on a connection cannot become part of a later one.
package preview

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LinkCookie is the name of the cookie and of the query parameter with the link,
// which authorises access to a port. Neither is ever forwarded.
const LinkCookie = "glovebox_link"

// A Target is a port of a sandbox, and the way in which the client reached it.
type Target struct {
	// Dial connects to the port. Serve calls it at most once and closes the
	// connection. Its errors wrap a [sandbox.Kind].
	Dial func(ctx context.Context) (net.Conn, error)
	Port int
	// Prefix is the beginning of the request's path if pages of many sandboxes
	// share one host name. It is in the form of a URL, without a slash at its
	// end. A page on a shared host name gets no origin, no cookies and no
	// storage. Prefix is empty if the port has its own host name.
	Prefix string
	// Network is the sandbox's network policy. The page may load resources only
	// from there and from itself.
	Network sandbox.Network
	// KeepAuthorization forwards the header Authorization, because it does not
	// hold the client's credentials for this server.
	KeepAuthorization bool
	// Plain keeps pages on a shared host name from running code and from sending
	// forms. People type tokens at such a host if it has a sign-in page.
	Plain bool
	// Host is the host, with or without a port, that the program sees in the Host
	// header. Empty is localhost with the port.
	Host string
	// Refuse answers with an error. It is either an error of Dial, or of kind
	// Unavailable for a bad answer of the program. For a method that is not
	// forwarded, it is of kind Unsupported.
	Refuse func(w http.ResponseWriter, err error)
}

// shared reports whether the page shares its host name with others.
func (t *Target) shared() bool { return t.Prefix != "" }

// host returns the host of the page from the program's view, and local its origin.
func (t *Target) host() string  { return cmp.Or(t.Host, "localhost:"+strconv.Itoa(t.Port)) }
func (t *Target) local() string { return "http://" + t.host() }

// secretHeaders are the headers, besides Authorization, with clients' credentials
// for this server. They are never forwarded to a program.
var secretHeaders = []string{"Proxy-Authorization", "X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token"}

// maxHeader bounds the headers of an answer, in bytes.
const maxHeader = 64 << 10

// errOnce is the error for a second connection, which the transport never needs.
var errOnce = errors.New("the connection to the program was used")

// Serve forwards a request to the program, and the answer to the client.
func Serve(w http.ResponseWriter, r *http.Request, t Target) {
	if t.shared() && preflight(w, r) {
		return
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		t.Refuse(w, sandbox.Errorf(sandbox.Unsupported, "ports of sandboxes do not accept the method %s", r.Method))
		return
	}
	conn, err := t.Dial(r.Context())
	if err != nil {
		t.Refuse(w, err)
		return
	}
	defer conn.Close()
	taken := make(chan net.Conn, 1)
	taken <- conn
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-taken:
				return c, nil
			default:
				return nil, errOnce
			}
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	defer transport.CloseIdleConnections()
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context())
		r.Body = newPatientBody(w, r.Body)
	}
	(&httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { t.rewrite(p) },
		Transport:      untold{transport},
		FlushInterval:  -1,
		ModifyResponse: func(resp *http.Response) error { return t.adapt(resp, r) },
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			t.Refuse(w, sandbox.Errorf(sandbox.Unavailable, "port %d of the sandbox: the program's answer: %w", t.Port, err))
		},
	}).ServeHTTP(&writer{ResponseWriter: w, rc: http.NewResponseController(w)}, r)
}

// untold is a transport that hides the httptrace hooks of the context. With them,
// ReverseProxy would forward 1xx answers, and then clear the headers that the
// server has already set.
type untold struct{ *http.Transport }

func (u untold) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.Transport.RoundTrip(r.WithContext(valueless{r.Context()}))
}

// valueless ends with another context, but has none of its values.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

// rewrite changes the request as if the program's own machine had sent it.
// ReverseProxy has already removed the hop-by-hop headers.
func (t *Target) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	path := strings.TrimPrefix(in.URL.EscapedPath(), t.Prefix)
	u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
	if err != nil {
		u = &url.URL{Path: "/"} // not reached: the path was parsed before
	}
	host := t.host()
	u.Scheme, u.Host, u.RawQuery = "http", host, WithoutLink(in.URL.RawQuery)
	out.URL, out.Host = u, host
	h := out.Header
	if !t.KeepAuthorization {
		h.Del("Authorization")
	}
	for _, name := range secretHeaders {
		h.Del(name)
	}
	for _, name := range []string{"X-Real-Ip", "X-Forwarded-Prefix"} {
		h.Del(name)
	}
	cookies := h.Values("Cookie")
	h.Del("Cookie")
	if t.shared() {
		// Cookies of the shared host name do not belong to the page. Referer
		// contains the link.
		h.Del("Referer")
	} else if own := withoutCookie(cookies); own != "" {
		h.Set("Cookie", own)
	}
	if origin := h.Get("Origin"); origin == "null" && t.shared() || !t.shared() && origin == originOf(in) {
		h.Set("Origin", t.local())
	}
	if up := h.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		h.Del("Upgrade")
		h.Del("Connection")
	}
	h.Set("X-Forwarded-Proto", scheme(in))
	h.Set("X-Forwarded-Host", in.Host)
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// originOf returns the origin of the requested page, in the form that the browser
// uses. Behind a proxy that terminates TLS, only the browser knows the scheme.
func originOf(r *http.Request) string {
	if origin := "https://" + r.Host; r.Header.Get("Origin") == origin {
		return origin
	}
	return scheme(r) + "://" + r.Host
}

// SameOrigin reports whether a request, if a browser sent it, came from a page of
// the same host or from a navigation.
func SameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return r.Header.Get("Sec-Fetch-Mode") == "navigate" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	}
	origins := r.Header.Values("Origin")
	return len(origins) == 0 || len(origins) == 1 && origins[0] == originOf(r)
}

// WithoutLink removes the link from a query, and leaves the rest unchanged.
func WithoutLink(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != LinkCookie {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// withoutCookie removes the link from the values of Cookie headers.
func withoutCookie(values []string) string {
	var kept []string
	for _, v := range values {
		for pair := range strings.SplitSeq(v, ";") {
			pair = strings.TrimSpace(pair)
			if name, _, _ := strings.Cut(pair, "="); pair != "" && name != LinkCookie {
				kept = append(kept, pair)
			}
		}
	}
	return strings.Join(kept, "; ")
}

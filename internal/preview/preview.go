// Package preview shows what listens on a port of a sandbox to a browser: it
// passes requests on, WebSockets too, and keeps what comes back from acting for
// anybody but itself.
//
// The edges that speak HTTP (httpserver, e2bapi) import it. They decide who may
// see what; [Serve] then serves one request. Both sides are untrusted: the
// program in the sandbox may answer anything, and the page that it serves runs
// in a person's browser.
//
// Each request has a connection of its own to the program, so nothing that one
// of them leaves on it becomes part of another.
package preview

import (
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

// LinkCookie is the cookie, and the parameter of a query, by which an edge knows
// who may see a port. Neither is ever passed on.
const LinkCookie = "glovebox_link"

// A Target is a port of a sandbox, and how the one who asks got there.
type Target struct {
	// Dial connects to the port. It is called once; its errors wrap a
	// [sandbox.Kind].
	Dial func(ctx context.Context) (net.Conn, error)
	Port int
	// Prefix is what the request's path begins with, as it is written in a URL
	// and without a slash at its end, where pages of many sandboxes are below
	// one host's name: such a page has no origin, no cookies and no storage.
	// It is empty where each port has a host's name of its own.
	Prefix string
	// Network is the sandbox's: its page may load from nothing else, itself
	// excepted.
	Network sandbox.Network
	// KeepAuthorization passes on the header Authorization: it is not the one
	// by which the sender proved who it is.
	KeepAuthorization bool
	// Refuse answers with an error of Dial, or with one of what the program
	// answered, of kind Unavailable.
	Refuse func(w http.ResponseWriter, err error)
}

// shared reports whether the page shares its host's name with others.
func (t *Target) shared() bool { return t.Prefix != "" }

// local is the origin that the program believes to have.
func (t *Target) local() string { return "http://localhost:" + strconv.Itoa(t.Port) }

// secretHeaders are those by which clients prove to this server who they are,
// beside Authorization. A program in a sandbox never sees one.
var secretHeaders = []string{"Proxy-Authorization", "X-Api-Key", "X-Access-Token", "E2b-Traffic-Access-Token"}

// maxHeader bounds the headers of an answer.
const maxHeader = 64 << 10

// errOnce is for a second connection, which there never is.
var errOnce = errors.New("the connection to the program was used")

// Serve passes a request on to the program and its answer back.
func Serve(w http.ResponseWriter, r *http.Request, t Target) {
	if t.shared() && preflight(w, r) {
		return
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		t.Refuse(w, sandbox.Errorf(sandbox.Unsupported, "method %s goes to no port of a sandbox", r.Method))
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

// untold is a transport that says nothing of what it sees on the way: by that a
// proxy passes informational answers on, and in their place what the server had
// to say itself.
type untold struct{ *http.Transport }

func (u untold) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.Transport.RoundTrip(r.WithContext(valueless{r.Context()}))
}

// valueless ends with another context, and has none of its values.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

// rewrite makes the request one to the program's own machine. What connects
// this server with the client is removed before.
func (t *Target) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	path := strings.TrimPrefix(in.URL.EscapedPath(), t.Prefix)
	u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
	if err != nil {
		u = &url.URL{Path: "/"} // it parsed before, so this is not reached
	}
	host := "localhost:" + strconv.Itoa(t.Port)
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
		// Cookies of this host's name are not the page's, and the address has
		// the link in it.
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

// originOf returns the origin of the page that a request is for, as a browser
// names it. Behind a proxy that ends TLS only the browser knows the scheme.
func originOf(r *http.Request) string {
	if origin := "https://" + r.Host; r.Header.Get("Origin") == origin {
		return origin
	}
	return scheme(r) + "://" + r.Host
}

// SameOrigin reports whether a browser, if it was one, sent the request for a
// page of that very host, or because a person went there.
func SameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return r.Header.Get("Sec-Fetch-Mode") == "navigate" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	}
	origins := r.Header.Values("Origin")
	return len(origins) == 0 || len(origins) == 1 && origins[0] == originOf(r)
}

// WithoutLink removes the link from a query, and leaves the rest as it is.
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

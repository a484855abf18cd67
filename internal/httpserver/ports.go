package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/preview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Ports gives access to the ports of programs in sandboxes.
type Ports interface {
	// DialPort connects to a port of a principal's sandbox.
	DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error)
	// Get returns a principal's sandbox, and Owner the owner of a sandbox.
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	Owner(ctx context.Context, id string) (sandbox.Principal, error)
	// VerifyPort checks a link to a port.
	VerifyPort(id string, port int, link string) (expires time.Time, err error)
}

const portsPath = "/ports/"

// portHost matches the beginning of a host name that means a port of a sandbox.
// portSegment matches the end of such a path, which may contain a link. A link in
// the path also authorises the resources to which the page refers.
var (
	portHost    = regexp.MustCompile(`^([1-9][0-9]{0,4})-(sbx_?[a-z2-7]{26})\.`)
	portSegment = regexp.MustCompile(`^([1-9][0-9]{0,4})(?:\.([a-z0-9]+\.[A-Za-z0-9_-]+))?$`)
)

// A portRequest is a request for a port of a sandbox.
type portRequest struct {
	id     string
	port   int
	link   string
	prefix string // of the path; empty if the host name identifies the port
}

// portOf parses the port that a request is for. ok is false if the request is not
// for a port. If ok is true, the error says what is wrong with the request.
func (s *Server) portOf(r *http.Request) (p portRequest, ok bool, err error) {
	host := strings.ToLower(hostname(r.Host))
	if m := portHost.FindStringSubmatch(host); m != nil && s.opts.PreviewDomain != "" && host[len(m[0]):] == s.opts.PreviewDomain {
		p.id = sandbox.CanonicalID(m[2])
		p.port, err = strconv.Atoi(m[1])
		return p, true, err
	}
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), portsPath)
	if !ok {
		return p, false, nil
	}
	id, rest, _ := strings.Cut(rest, "/")
	segment, _, _ := strings.Cut(rest, "/")
	m := portSegment.FindStringSubmatch(segment)
	prefix := portsPath + id + "/" + segment
	if id = sandbox.CanonicalID(id); !sandbox.ValidID(id) || m == nil {
		return p, true, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is nothing at this path"), "use %sSANDBOX/PORT/", portsPath)
	}
	p.id, p.link, p.prefix = id, m[2], prefix
	p.port, err = strconv.Atoi(m[1])
	return p, true, err
}

// showPorts serves requests for ports, and passes all others to next.
func (s *Server) showPorts(g *guard, next http.Handler) http.Handler {
	if s.opts.Ports == nil {
		return next
	}
	limits := newLimits(s.opts.RequestsPerSecond, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok, err := s.portOf(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if p.prefix == "" && s.e2b != nil && s.opts.E2B.TakesPort(r) {
			g.checkOrigin(s.e2b).ServeHTTP(w, r)
			return
		}
		notePort(r.Context())
		serve := func(w http.ResponseWriter, r *http.Request) {
			if err != nil {
				writeError(w, err)
				return
			}
			s.showPort(w, r, p, limits)
		}
		if p.prefix == "" {
			serve(w, r)
			return
		}
		notePath(r.Context(), portsPath+p.id+"/"+strconv.Itoa(p.port)+"/…")
		h := http.Handler(http.HandlerFunc(serve))
		if p.link == "" { // without a link, refuse pages of foreign origins
			h = g.checkOrigin(h)
		}
		g.checkHost(h).ServeHTTP(w, r)
	})
}

// showPort serves a request for a port, if the client has a link or a token for
// it.
func (s *Server) showPort(w http.ResponseWriter, r *http.Request, p portRequest, limits *limits) {
	id, err := s.mayShow(w, r, &p)
	if err != nil {
		s.refuseShow(w, r, p, err)
		return
	}
	noteIdentity(r.Context(), id)
	principal, byLink := id.Principal, p.link != ""
	limits.limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.prefix != "" && r.URL.EscapedPath() == p.prefix {
			w.Header().Set("Location", p.prefix+"/"+query(r))
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		if p.prefix == "" && r.URL.Query().Has(preview.LinkCookie) && isVisit(r) {
			// Remove the link from the URL, so that neither the page nor the
			// address bar shows it.
			w.Header().Set("Location", "/"+strings.TrimLeft(r.URL.EscapedPath(), "/")+query(r))
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		sb, err := s.opts.Ports.Get(r.Context(), principal, p.id)
		if err != nil {
			refusePort(w, err)
			return
		}
		show := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.closing, cancel)()
			preview.Serve(w, r.WithContext(ctx), preview.Target{
				Dial: func(ctx context.Context) (net.Conn, error) {
					return s.opts.Ports.DialPort(ctx, principal, p.id, p.port)
				},
				Port: p.port, Prefix: p.prefix, Network: sb.Network, Plain: s.plainPreviews(),
				KeepAuthorization: byLink && !s.isOurs(r),
				Refuse:            refusePort,
			})
		}))
		show = s.live.serve(show)
		if byLink {
			show = endAt(id.Expires, show)
		}
		// Bytes on a WebSocket are not seen here, so treat the stream as busy.
		s.stream(w, r, show, true, writeErrorTo)
	}), writeErrorTo).ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
}

// plainPreviews reports whether pages on the server's own host name may run no code,
// because people type tokens there. With a dashboard, that is so if links to ports
// lead to host names of their own.
func (s *Server) plainPreviews() bool {
	return s.opts.SignIn != nil || s.opts.Dashboard != nil && s.opts.PreviewDomain != ""
}

// refuseShow answers a request for a port with an error of mayShow.
func (s *Server) refuseShow(w http.ResponseWriter, r *http.Request, p portRequest, err error) {
	byToken := p.prefix != "" && p.link == "" // other requests get no challenge
	if errors.Is(err, errNoRun) {
		if byToken {
			s.challenge(w, r, insufficientScope)
		}
		refuse(w, http.StatusForbidden, "forbidden", err.Error(), "use a token that was created with that scope")
		return
	}
	if byToken && errors.Is(err, sandbox.Unauthenticated) {
		s.challenge(w, r, codeOf(r))
	}
	writeError(w, err)
}

// endAt ends the stream that next serves when it expires. It also closes a connection
// whose client does not read, which the end of a context does not.
func endAt(expires time.Time, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		use := ctx.Value(streamKey{}).(*streamUse)
		timer := time.AfterFunc(time.Until(expires), func() {
			use.evict()
			cancel()
		})
		defer timer.Stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// mayShow returns the identity for a request for a port: the client's own or,
// with a link, the owner of the sandbox until the link expires.
func (s *Server) mayShow(w http.ResponseWriter, r *http.Request, p *portRequest) (id auth.Identity, err error) {
	if p.prefix == "" {
		if err := s.linkOfHost(w, r, p); err != nil {
			return id, err
		}
	}
	if p.link != "" {
		if id.Expires, err = s.opts.Ports.VerifyPort(p.id, p.port, p.link); err != nil {
			return id, err
		}
		if id.Principal, err = s.opts.Ports.Owner(r.Context(), p.id); err != nil {
			return id, err
		}
		id.Scopes = []auth.Scope{auth.ScopeRun}
		return id, s.checkOwner(r.Context(), id)
	}
	if p.prefix == "" && r.Header.Get("Authorization") == "" {
		return id, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the request has no link to this port"),
			"open the complete URL from preview_url, or ask for a new one")
	}
	id, err = s.identify(r)
	if err == nil && !id.Can(auth.ScopeRun) {
		err = errNoRun
	}
	return id, err
}

// errNoRun is the error for a valid token that may not use ports.
var errNoRun = errors.New("the token lacks the scope run")

// checkOwner refuses a link whose owner was revoked. The error wraps
// [sandbox.Unauthenticated], as the error for an expired link does. A revocation
// takes effect within about a second; see [auth.Auth.Gone].
func (s *Server) checkOwner(ctx context.Context, owner auth.Identity) error {
	gone, err := s.opts.Auth.Gone(ctx, owner)
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Log.Error("check the owner of a link", "error", err)
		}
		return err
	}
	if gone {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the link ended when the token of its owner was revoked"), "ask for a new one")
	}
	return nil
}

// linkOfHost finds the link of a request if the port has its own host name. The
// link is in the query, from which it moves to a cookie, or in the cookie.
func (s *Server) linkOfHost(w http.ResponseWriter, r *http.Request, p *portRequest) error {
	if link := r.URL.Query().Get(preview.LinkCookie); link != "" {
		expires, err := s.opts.Ports.VerifyPort(p.id, p.port, link)
		if err != nil {
			return err
		}
		p.link = link
		cookie := &http.Cookie{
			Name: preview.LinkCookie, Value: link, Path: "/", Expires: expires,
			HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
		}
		if r.Header.Get("Sec-Fetch-Dest") == "iframe" && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			// In a frame of another site's page, such as the dashboard's, browsers keep
			// only such a cookie. It counts in frames of that site alone.
			cookie.Secure, cookie.SameSite, cookie.Partitioned = true, http.SameSiteNoneMode, true
		}
		http.SetCookie(w, cookie)
		return nil
	}
	cookies := r.CookiesNamed(preview.LinkCookie)
	if len(cookies) == 0 {
		return nil
	}
	// All sandboxes' host names belong to one site, so the browser also sends the
	// cookie with requests from another sandbox's page.
	if !preview.SameOrigin(r) {
		return sandbox.Errorf(sandbox.Unauthenticated, "pages of other origins may not use this port")
	}
	p.link = cookies[0].Value
	for _, c := range cookies {
		// Another sandbox's page may set a cookie for the whole domain, which
		// hides the right one. So try all cookies.
		if _, err := s.opts.Ports.VerifyPort(p.id, p.port, c.Value); err == nil {
			p.link = c.Value
			break
		}
	}
	return nil
}

// isOurs reports whether a request has a token of this server. A program in a
// sandbox must not see it.
func (s *Server) isOurs(r *http.Request) bool {
	switch len(r.Header.Values("Authorization")) {
	case 0:
		return false
	case 1:
	default:
		return true // one of them may be a token
	}
	_, err := s.identify(r)
	return !errors.Is(err, sandbox.Unauthenticated)
}

// isVisit reports whether a person navigates to a page with a browser.
func isVisit(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "text/html"))
}

// query returns a request's query without the link, and with its question mark.
func query(r *http.Request) string {
	if q := preview.WithoutLink(r.URL.RawQuery); q != "" {
		return "?" + q
	}
	return ""
}

// refusePort answers with an error. It answers 502 if the program does not
// answer.
func refusePort(w http.ResponseWriter, err error) {
	if errors.Is(err, sandbox.Unavailable) {
		refuse(w, http.StatusBadGateway, string(sandbox.Unavailable), err.Error(), sandbox.HintOf(err))
		return
	}
	writeError(w, err)
}

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

// Ports are what programs in sandboxes listen on.
type Ports interface {
	// DialPort connects to a port of a principal's sandbox.
	DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error)
	// Get returns a principal's sandbox, and Owner whose one is.
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	Owner(ctx context.Context, id string) (sandbox.Principal, error)
	// VerifyPort checks a link to a port.
	VerifyPort(id string, port int, link string) (expires time.Time, err error)
}

const portsPath = "/ports/"

// portHost is the beginning of a host's name that means a port of a sandbox, and
// portSegment the end of a path's, which may have a link in it. A link in the
// path holds for all that the page refers to, too.
var (
	portHost    = regexp.MustCompile(`^([1-9][0-9]{0,4})-(sbx_[a-z2-7]{26})\.`)
	portSegment = regexp.MustCompile(`^([1-9][0-9]{0,4})(?:\.([a-z0-9]+\.[A-Za-z0-9_-]+))?$`)
)

// A portRequest is a request for a port of a sandbox.
type portRequest struct {
	id     string
	port   int
	link   string
	prefix string // of the path; empty if the host's name says all
}

// portOf reads what port a request is for. ok is false if it is for none, and
// the error says what is wrong with it.
func (s *Server) portOf(r *http.Request) (p portRequest, ok bool, err error) {
	host := strings.ToLower(hostname(r.Host))
	if m := portHost.FindStringSubmatch(host); m != nil && s.opts.PreviewDomain != "" && host[len(m[0]):] == s.opts.PreviewDomain {
		p.id = m[2]
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
	if !sandbox.ValidID(id) || m == nil {
		return p, true, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is nothing at this path"), "ports are at %sSANDBOX/PORT/", portsPath)
	}
	p.id, p.link, p.prefix = id, m[2], portsPath+id+"/"+segment
	p.port, err = strconv.Atoi(m[1])
	return p, true, err
}

// showPorts serves requests for ports, and leaves others to next.
func (s *Server) showPorts(g *guard, next http.Handler) http.Handler {
	if s.opts.Ports == nil {
		return next
	}
	limits := newLimits(s.opts.RequestsPerSecond)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok, err := s.portOf(r)
		if !ok {
			next.ServeHTTP(w, r)
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
		if p.link == "" { // a browser's page may not use another's token
			h = g.checkOrigin(h)
		}
		g.checkHost(h).ServeHTTP(w, r)
	})
}

// showPort serves a request for a port of whoever has a link or a token for it.
func (s *Server) showPort(w http.ResponseWriter, r *http.Request, p portRequest, limits *limits) {
	id, err := s.mayShow(w, r, &p)
	if err != nil {
		if errors.Is(err, sandbox.Unauthenticated) && p.prefix != "" && p.link == "" {
			s.challenge(w, r, "")
		}
		writeError(w, err)
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
			// The address that a person sees, and that the page does, has no link.
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
				Port: p.port, Prefix: p.prefix, Network: sb.Network,
				KeepAuthorization: byLink && !s.isOurs(r),
				Refuse:            refusePort,
			})
		}))
		if !byLink {
			show = s.live.serve(show)
		}
		// What passes on a WebSocket is not seen here, so the stream is busy.
		s.stream(w, r, show, true, writeErrorTo)
	}), writeErrorTo).ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
}

// mayShow returns in whose name a request may have a port: its sender's, or for a
// link that of the sandbox's owner.
func (s *Server) mayShow(w http.ResponseWriter, r *http.Request, p *portRequest) (id auth.Identity, err error) {
	if p.prefix == "" {
		if err := s.linkOfHost(w, r, p); err != nil {
			return id, err
		}
	}
	if p.link != "" {
		if _, err := s.opts.Ports.VerifyPort(p.id, p.port, p.link); err != nil {
			return id, err
		}
		id.Principal, err = s.opts.Ports.Owner(r.Context(), p.id)
		id.Scopes = []auth.Scope{auth.ScopeRun}
		return id, err
	}
	if p.prefix == "" && r.Header.Get("Authorization") == "" {
		return id, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "there is no link to this port"),
			"open the whole URL that preview_url gave, or ask for a new one")
	}
	id, err = s.identify(r)
	if err == nil && !id.Can(auth.ScopeRun) {
		err = sandbox.Errorf(sandbox.Unauthenticated, "the token lacks the scope run")
	}
	return id, err
}

// linkOfHost finds the link of a request where the port has a host's name of its
// own: in the query, from where it goes into a cookie, or in that.
func (s *Server) linkOfHost(w http.ResponseWriter, r *http.Request, p *portRequest) error {
	if link := r.URL.Query().Get(preview.LinkCookie); link != "" {
		expires, err := s.opts.Ports.VerifyPort(p.id, p.port, link)
		if err != nil {
			return err
		}
		p.link = link
		http.SetCookie(w, &http.Cookie{
			Name: preview.LinkCookie, Value: link, Path: "/", Expires: expires,
			HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
		})
		return nil
	}
	cookies := r.CookiesNamed(preview.LinkCookie)
	if len(cookies) == 0 {
		return nil
	}
	// Sandboxes' names are of one site, so the browser sends it for a page of
	// another, too.
	if !preview.SameOrigin(r) {
		return sandbox.Errorf(sandbox.Unauthenticated, "pages of other origins may not use this one")
	}
	p.link = cookies[0].Value
	for _, c := range cookies {
		// Such a page may set one for all names below the domain, in the way of
		// the good one.
		if _, err := s.opts.Ports.VerifyPort(p.id, p.port, c.Value); err == nil {
			p.link = c.Value
			break
		}
	}
	return nil
}

// isOurs reports whether a request has a token of this server, which is nobody
// else's to see.
func (s *Server) isOurs(r *http.Request) bool {
	switch len(r.Header.Values("Authorization")) {
	case 0:
		return false
	case 1:
	default:
		return true // or one of them may be
	}
	_, err := s.identify(r)
	return !errors.Is(err, sandbox.Unauthenticated)
}

// isVisit reports whether a person goes to a page by a browser.
func isVisit(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "text/html"))
}

// query returns a request's query without a link, and with its question mark.
func query(r *http.Request) string {
	if q := preview.WithoutLink(r.URL.RawQuery); q != "" {
		return "?" + q
	}
	return ""
}

// refusePort answers for a program that does not.
func refusePort(w http.ResponseWriter, err error) {
	if errors.Is(err, sandbox.Unavailable) {
		refuse(w, http.StatusBadGateway, string(sandbox.Unavailable), err.Error(), sandbox.HintOf(err))
		return
	}
	writeError(w, err)
}

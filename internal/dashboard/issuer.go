package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The paths of a sign-in at the issuer. The issuer sends people to IssuerBackPath.
const (
	issuerPath     = Path + "issuer"
	IssuerBackPath = Path + "issuer/back"
)

// The cookie of the browser that began a sign-in. Browsers send it when the issuer leads
// back, which no strict cookie survives.
const (
	flowCookie       = "glovebox_issuer"
	secureFlowCookie = "__Host-glovebox_issuer"
)

const (
	// flowTTL is how long a sign-in at the issuer may take.
	flowTTL  = 10 * time.Minute
	maxFlows = 1000
	// maxSaid bounds what of the issuer's words is shown, in characters.
	maxSaid = 300
)

// A flow is a sign-in at the issuer that a browser began.
type flow struct {
	auth.SignIn
	next string
}

// IssuerName returns the issuer's address for people, or "" if there is no sign-in at an
// issuer.
func (v signInView) IssuerName() string {
	_, name, _ := strings.Cut(v.Issuer, "://")
	return strings.TrimRight(name, "/")
}

// flowCookie returns the cookie of a sign-in at the issuer. A negative age removes it.
func (s *Server) flowCookie(r *http.Request, value string, age int) *http.Cookie {
	c := s.cookie(r, value, age)
	c.SameSite = http.SameSiteLaxMode
	if c.Name = flowCookie; c.Secure {
		c.Name = secureFlowCookie
	}
	return c
}

// toIssuer sends a person to the issuer's page for signing in.
func (s *Server) toIssuer(w http.ResponseWriter, r *http.Request) {
	next := nextPage(r.FormValue("next"))
	switch {
	case s.opts.Issuer == "":
		s.Refuse(w, r, sandbox.Errorf(sandbox.NotFound, "people do not sign in at an issuer here"))
		return
	case r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "":
		s.Refuse(w, r, sandbox.Errorf(sandbox.Forbidden, "a sign-in is only for people"))
		return
	case !s.attempts.allow(r):
		s.tooMany(w, r, next)
		return
	}
	begun, err := s.opts.Auth.BeginSignIn(r.Context())
	if err != nil {
		s.notSignedIn(w, r, next, err)
		return
	}
	secret, _ := s.flows.put(flow{SignIn: begun, next: next})
	http.SetCookie(w, s.flowCookie(r, secret, int(flowTTL/time.Second)))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, begun.URL, http.StatusSeeOther)
}

// fromIssuer receives a person after the issuer's sign-in.
func (s *Server) fromIssuer(w http.ResponseWriter, r *http.Request) {
	if s.opts.Issuer == "" || r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "" {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Forbidden, "a sign-in is only for people"))
		return
	}
	if !s.attempts.allow(r) {
		s.tooMany(w, r, Path)
		return
	}
	f, ok := s.flowOf(r)
	http.SetCookie(w, s.flowCookie(r, "", -1))
	query := r.URL.Query()
	refused := func(status int, text string) { s.signInPage(w, r, status, cmp.Or(f.next, Path), text) }
	switch from := query.Get("iss"); {
	case !ok || !f.Answered(query.Get("state")):
		// A link from elsewhere must not sign a browser in, nor show its words here.
		refused(http.StatusUnauthorized, "This sign-in was not begun in this browser at this address, or it is over. Begin it again.")
		return
	case from != "" && from != s.opts.Issuer:
		refused(http.StatusUnauthorized, "The answer to this sign-in is of another issuer. Begin it again.")
		return
	case query.Has("error"):
		said := cmp.Or(query.Get("error_description"), query.Get("error"))
		refused(http.StatusForbidden, "The issuer refused the sign-in: "+plain(said))
		return
	}
	id, err := s.opts.Auth.FinishSignIn(r.Context(), f.SignIn, query.Get("code"))
	switch {
	case err != nil:
		s.notSignedIn(w, r, f.next, err)
		return
	case !id.Reads(auth.ScopeRun):
		refused(http.StatusForbidden, "The issuer gives you none of the scopes run and read, without which there are no sandboxes to see. Its administrator can change that.")
		return
	}
	s.arrive(w, r, id, f.next)
}

// flowOf returns the flow of a request's cookie, which is then no longer valid.
func (s *Server) flowOf(r *http.Request) (flow, bool) {
	for _, c := range r.CookiesNamed(s.flowCookie(r, "", 0).Name) {
		if f, ok := s.flows.take(c.Value); ok {
			return f, true
		}
	}
	return flow{}, false
}

// notSignedIn says why the sign-in at the issuer failed.
func (s *Server) notSignedIn(w http.ResponseWriter, r *http.Request, next string, err error) {
	p := sandbox.ProblemOf(err, nil)
	if p.Kind == sandbox.Internal {
		s.Refuse(w, r, err)
		return
	}
	s.opts.Log.Warn("sign in at the issuer", "remote", r.RemoteAddr, "error", err)
	text := "The sign-in failed: " + plain(p.Message) + "."
	if errors.Is(err, sandbox.Unavailable) {
		text = "The issuer does not answer. Try again later."
	}
	s.signInPage(w, r, p.Kind.HTTPStatus(), next, text)
}

// plain returns a text of the issuer as one line of printable characters.
func plain(text string) string {
	runes := []rune(strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " "))
	if len(runes) > maxSaid {
		return string(runes[:maxSaid]) + " …"
	}
	return string(runes)
}

// issuerLink returns the address that begins a sign-in at the issuer.
func issuerLink(next string) string {
	if next == Path {
		return issuerPath
	}
	return issuerPath + "?" + url.Values{"next": {next}}.Encode()
}

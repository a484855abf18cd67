package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	signInPath  = Path + "signin"
	signOutPath = Path + "signout"
	openPath    = Path + "open"
)

// The name of the session's cookie. With HTTPS, the prefix keeps other hosts of the
// same domain, such as previews of sandboxes, from setting it.
const (
	cookieName       = "glovebox_session"
	secureCookieName = "__Host-glovebox_session"
)

// The bounds of a request to sign in.
const (
	maxForm     = 16 << 10
	formTimeout = 10 * time.Second
)

// Authenticate serves the sign-in page and static files itself. It calls next for
// requests with a session, with the identity in the context. It refuses requests that
// a page of another origin made.
func (s *Server) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkOrigin(r); err != nil {
			s.Refuse(w, r, err)
			return
		}
		if _, pattern := s.public.Handler(r); pattern != "" {
			s.public.ServeHTTP(w, r)
			return
		}
		sess, err := s.session(r)
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		if sess == nil {
			s.askToSignIn(w, r)
			return
		}
		ctx := auth.NewContext(context.WithValue(r.Context(), sessionKey{}, sess), sess.id)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// checkOrigin refuses requests of other origins' pages. Those pages may only link to
// this server. Hosts of previews belong to the same site, so cookies of that site's
// rules do not suffice.
func (s *Server) checkOrigin(r *http.Request) error {
	foreign := sandbox.Errorf(sandbox.Forbidden, "pages of other origins may not use the dashboard")
	if err := s.crossing.Check(r); err != nil {
		return foreign
	}
	site := r.Header.Get("Sec-Fetch-Site")
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !safe && site == "" && r.Header.Get("Origin") == "":
		return foreign // every browser sends one of the two
	case site == "", site == "same-origin", site == "none":
		return nil
	case safe && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") != "iframe":
		return nil
	}
	return foreign
}

// session returns the session of a request, or nil.
func (s *Server) session(r *http.Request) (*session, error) {
	// The other name does not count: a page below the preview domain could set the plain
	// cookie for the whole domain, but not the one with the prefix __Host-.
	for _, c := range r.CookiesNamed(s.cookie(r, "", 0).Name) {
		sess, ok := s.sessions.find(c.Value, isLocal(r))
		if !ok {
			continue
		}
		gone, err := s.opts.Auth.Gone(r.Context(), sess.id)
		if err != nil {
			return nil, err
		}
		if gone {
			s.sessions.end(sess)
			continue
		}
		return sess, nil
	}
	return nil, nil
}

// askToSignIn sends a visitor to the sign-in page, and refuses other requests.
func (s *Server) askToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || s.Lasts(r) || r.Header.Get("Sec-Fetch-Dest") == "image" {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Unauthenticated, "you are not signed in"))
		return
	}
	to := signInPath
	if r.URL.Path != Path {
		to += "?" + url.Values{"next": {r.URL.EscapedPath()}}.Encode()
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// nextPage returns the page that a person wanted before the sign-in.
func nextPage(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.RawQuery != "" || !strings.HasPrefix(next, Path) || strings.ContainsAny(next, "\\\r\n") {
		return Path
	}
	return next
}

// A signInView is the content of the sign-in page.
type signInView struct {
	frame
	Next   string
	Form   bool   // there is a form for a token
	Wrong  string // error of the last attempt, or ""
	Issuer string // where people sign in, or ""
	Begin  string // link to the sign-in at the issuer
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request) {
	if sess, err := s.session(r); err == nil && sess != nil {
		http.Redirect(w, r, nextPage(r.FormValue("next")), http.StatusSeeOther)
		return
	}
	s.signInPage(w, r, http.StatusOK, nextPage(r.FormValue("next")), "")
}

func (s *Server) signInPage(w http.ResponseWriter, r *http.Request, status int, next, wrong string) {
	s.show(w, r, status, "signin", signInView{
		frame: frame{Title: "Sign in", Version: s.opts.Version},
		Next:  next, Form: s.opts.TokenForm, Wrong: wrong, Issuer: s.opts.Issuer, Begin: issuerLink(next),
	})
}

// signIn begins a session for a person who typed a token.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	if !s.opts.TokenForm {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Forbidden, "tokens do not sign in here"))
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(s.opts.Now().Add(formTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.opts.Log.Debug("set the deadline of a sign-in", "error", err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	next := nextPage(r.PostFormValue("next"))
	if !s.attempts.allow(r) {
		s.tooMany(w, r, next)
		return
	}
	id, err := s.opts.Auth.Verify(r.Context(), strings.TrimSpace(r.PostFormValue("token")))
	switch {
	case errors.Is(err, sandbox.Unauthenticated):
		s.signInPage(w, r, http.StatusUnauthorized, next, "This token is not valid. Enter the complete token, which begins with gbx_.")
		return
	case err != nil:
		s.Refuse(w, r, err)
		return
	case !id.Reads(auth.ScopeRun):
		s.signInPage(w, r, http.StatusForbidden, next, "This token lacks the scope run, without which there are no sandboxes to see.")
		return
	}
	s.begin(w, r, id)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// tooMany answers an attempt to sign in beyond the bound.
func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, next string) {
	w.Header().Set("Retry-After", "5")
	s.signInPage(w, r, http.StatusTooManyRequests, next, "There were too many attempts. Try again in a few seconds.")
}

// begin begins a session, and ends the one that the browser had.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	if old, err := s.session(r); err == nil && old != nil {
		s.sessions.end(old)
	}
	http.SetCookie(w, s.cookie(r, s.sessions.begin(id, isLocal(r)), 0))
	w.Header().Set("Cache-Control", "no-store")
	s.opts.Log.Info("signed in to the dashboard", "principal", id.Principal, "remote", r.RemoteAddr)
}

// cookie returns the session's cookie. A negative age removes it.
func (s *Server) cookie(r *http.Request, value string, age int) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if s.opts.Secure || r.TLS != nil {
		c.Name, c.Secure = secureCookieName, true
	}
	return c
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request, sess *session) error {
	s.sessions.end(sess)
	http.SetCookie(w, s.cookie(r, "", -1))
	http.Redirect(w, r, signInPath, http.StatusSeeOther)
	return nil
}

// Link returns the path and query of a link that signs one browser in as id, once and
// within a minute. The error wraps [sandbox.Forbidden] if the identity lacks the scope
// run, or [sandbox.Exhausted] if too many links wait for their use.
func (s *Server) Link(id auth.Identity) (path string, expires time.Time, err error) {
	if !id.Reads(auth.ScopeRun) {
		return "", time.Time{}, sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "the token lacks the scope run"), "name another token, which has it")
	}
	if n := s.links.waiting(); n >= maxLinks {
		return "", time.Time{}, sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "%d links wait for their use", n), linkTTL)
	}
	code, expires := s.links.put(id)
	return openPath + "?code=" + code, expires, nil
}

// open receives a person who opens a one-time link.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "" {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Forbidden, "a one-time link is only for people"))
		return
	}
	if !s.attempts.allow(r) {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Exhausted, "there were too many attempts; try again in a few seconds"))
		return
	}
	id, ok := s.links.take(r.URL.Query().Get("code"))
	if !ok {
		s.signInPage(w, r, http.StatusUnauthorized, Path, "This link was used before, or is older than a minute. Make another with glovebox open.")
		return
	}
	if gone, err := s.opts.Auth.Gone(r.Context(), id); err != nil || gone {
		s.signInPage(w, r, http.StatusUnauthorized, Path, "The token of this link was revoked.")
		return
	}
	s.arrive(w, r, id, Path)
}

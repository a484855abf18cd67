package dashboard

import (
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// arrivedPath is the path at which the session of an arrival begins.
const arrivedPath = Path + "arrived"

// The cookie of an arrival. Browsers send it exactly when they send a session's cookie,
// because both are strict.
const (
	arrivalCookie       = "glovebox_arrival"
	secureArrivalCookie = "__Host-glovebox_arrival"
)

const (
	// arrivalTTL is how long a browser may take from the proof of an identity to the
	// session.
	arrivalTTL  = time.Minute
	maxArrivals = 1000
)

// An arrival is a person whose identity is proved, and whose session has not begun.
type arrival struct {
	id    auth.Identity
	next  string // the page that the person wanted
	local bool   // the proof came from this machine, and so must the next request
}

// arrive answers a person whose identity is proved with a page that leads to
// arrivedPath. Another site may have led the person here: the issuer, or a page with a
// one-time link. Browsers then send no strict cookie, so an older session of the browser
// is not known yet. They send the cookie with the request of the answer's page.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request, id auth.Identity, next string) {
	secret, _ := s.arrivals.put(arrival{id, next, isLocal(r)})
	http.SetCookie(w, s.arrivalCookie(r, secret, int(arrivalTTL/time.Second)))
	w.Header().Set("Cache-Control", "no-store")
	s.show(w, r, http.StatusOK, "opened", frame{Title: "Signed in", Version: s.opts.Version, Refresh: arrivedPath})
}

// arrived begins the session of an arrival, and ends the session that the browser had.
func (s *Server) arrived(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "" {
		s.Refuse(w, r, sandbox.Errorf(sandbox.Forbidden, "a sign-in is only for people"))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	for _, c := range r.CookiesNamed(s.arrivalCookie(r, "", 0).Name) {
		a, ok := s.arrivals.take(c.Value)
		if !ok || a.local && !isLocal(r) {
			continue
		}
		http.SetCookie(w, s.arrivalCookie(r, "", -1))
		s.begin(w, r, a.id)
		http.Redirect(w, r, a.next, http.StatusSeeOther)
		return
	}
	if sess, err := s.session(r); err == nil && sess != nil { // the page was loaded again
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	s.signInPage(w, r, http.StatusUnauthorized, Path, "This sign-in is over. Begin it again.")
}

// arrivalCookie returns the cookie of an arrival. A negative age removes it.
func (s *Server) arrivalCookie(r *http.Request, value string, age int) *http.Cookie {
	c := s.cookie(r, value, age)
	if c.Name = arrivalCookie; c.Secure {
		c.Name = secureArrivalCookie
	}
	return c
}

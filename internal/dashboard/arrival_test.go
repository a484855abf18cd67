package dashboard

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// elsewhere are the headers of a navigation that another site began.
var elsewhere = []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}

// fromElsewhere follows a link on another site. As a browser does, it keeps the strict
// cookies back.
func (w *world) fromElsewhere(path string) (*http.Response, string) {
	w.Helper()
	session := w.cookies[cookieName]
	delete(w.cookies, cookieName)
	delete(w.cookies, arrivalCookie)
	res, body := w.get(path, elsewhere...)
	if w.cookies[cookieName] == "" {
		w.cookies[cookieName] = session
	}
	return res, body
}

// TestArrivalEndsOldSession: a browser with a session signs in as another principal. The old
// session is over, also if another site began the sign-in and led back from it.
func TestArrivalEndsOldSession(t *testing.T) {
	issuer := func(begin func(w *world, path string) (*http.Response, string)) func(*world) {
		return func(w *world) {
			if res, body := begin(w, issuerPath+"?next=/ui/try"); res.StatusCode != http.StatusSeeOther {
				w.Fatalf("begin: %d\n%s", res.StatusCode, body)
			}
			if res, body := w.fromElsewhere(back("bob")); res.StatusCode != http.StatusOK {
				w.Fatalf("back: %d\n%s", res.StatusCode, body)
			}
			w.arrive("/ui/try")
		}
	}
	for name, signIn := range map[string]func(*world){
		"begun here":      issuer(func(w *world, path string) (*http.Response, string) { return w.get(path) }),
		"begun elsewhere": issuer(func(w *world, path string) (*http.Response, string) { return w.fromElsewhere(path) }),
		"a one-time link": func(w *world) {
			link, _, err := w.server.Link(auth.Identity{Principal: "token:bob", Scopes: []auth.Scope{auth.ScopeRun}})
			if err != nil {
				w.Fatal(err)
			}
			if res, body := w.fromElsewhere(link); res.StatusCode != http.StatusOK {
				w.Fatalf("the link: %d\n%s", res.StatusCode, body)
			}
			w.arrive(Path)
		},
		"a token": func(w *world) { w.signIn("bob") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withIssuer)
			w.signIn("alice")
			old := w.cookies[cookieName]
			sess, ok := w.server.sessions.find(old, false)
			if !ok {
				t.Fatal("there is no session of alice")
			}
			signIn(w)
			if n := len(w.server.sessions.set); n != 1 || sess.ctx.Err() == nil {
				t.Errorf("%d sessions; the old one's context: %v", n, sess.ctx.Err())
			}
			if _, body := w.get(Path); !strings.Contains(body, "signed in as bob") {
				t.Errorf("the page is of another principal:\n%s", body)
			}
			if len(w.cookies) != 1 {
				t.Errorf("the cookies are %v", w.cookies)
			}
			w.cookies[cookieName] = old
			if res, _ := w.get(Path); res.StatusCode != http.StatusSeeOther {
				t.Errorf("with the cookie of before: %d", res.StatusCode)
			}
		})
	}
}

// TestArrivalRefused has arrivals that begin no session.
func TestArrivalRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		header []string
		status int
		want   string
	}{
		"late":           {func(w *world) { w.now = w.now.Add(arrivalTTL) }, nil, 401, "This sign-in is over"},
		"twice":          {func(w *world) { kept := maps.Clone(w.cookies); w.arrive(Path); w.cookies = kept }, nil, 401, "This sign-in is over"},
		"no cookie":      {func(w *world) { clear(w.cookies) }, nil, 401, "This sign-in is over"},
		"a prefetch":     {func(*world) {}, []string{"Sec-Purpose", "prefetch"}, 403, "only for people"},
		"a foreign part": {func(*world) {}, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "other origins"},
		"from elsewhere": {func(w *world) { w.remote = "192.0.2.1:1" }, nil, 401, "This sign-in is over"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.remote = "127.0.0.1:1"
			link, _, err := w.server.Link(auth.Identity{Principal: alice, Scopes: []auth.Scope{auth.ScopeRun}})
			if err != nil {
				t.Fatal(err)
			}
			w.get(link)
			tt.change(w)
			if res, body := w.get(arrivedPath, tt.header...); res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d\n%s\nwant %d with %q", res.StatusCode, body, tt.status, tt.want)
			}
			if w.cookies[cookieName] != "" {
				t.Error("the browser has a session")
			}
		})
	}
	w := newWorld(t, nil)
	w.signIn("alice")
	if res, _ := w.get(arrivedPath); res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != Path {
		t.Errorf("with a session: %d to %s", res.StatusCode, res.Header.Get("Location"))
	}
}

package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSignIn(t *testing.T) {
	w := newWorld(t, nil)
	res, _ := w.get(Path + "runs/" + theRun)
	if to := res.Header.Get("Location"); res.StatusCode != 303 || to != signInPath+"?next=%2Fui%2Fruns%2F"+theRun {
		t.Fatalf("without a session: %d to %s", res.StatusCode, to)
	}
	if res, body := w.get(Path + "events"); res.StatusCode != 401 {
		t.Errorf("a stream without a session: %d %s", res.StatusCode, body)
	}
	if res, body := w.get(signInPath + "?next=/ui/runs/x"); res.StatusCode != 200 || !strings.Contains(body, `value="/ui/runs/x"`) {
		t.Errorf("the page: %d %s", res.StatusCode, body)
	}
	for token, want := range map[string]int{"wrong": 401, "": 401, "files": 403, strings.Repeat("x", 2*maxForm): 401} {
		if res, body := w.post(signInPath, url.Values{"token": {token}}); res.StatusCode != want || !strings.Contains(body, `role="alert"`) || len(res.Cookies()) > 0 {
			t.Errorf("token %.20q: %d %s", token, res.StatusCode, body)
		}
	}
	res, _ = w.post(signInPath, url.Values{"token": {" alice "}, "next": {"/ui/runs/" + theRun}})
	c := res.Cookies()
	if len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Secure || len(c[0].Value) < 43 {
		t.Fatalf("the cookies are %+v", c)
	}
	if to := res.Header.Get("Location"); res.StatusCode != 303 || to != "/ui/runs/"+theRun {
		t.Errorf("after the sign-in: %d to %s", res.StatusCode, to)
	}
	if res, body := w.get(Path); res.StatusCode != 200 || !strings.Contains(body, "alice") || !strings.Contains(body, box) {
		t.Errorf("signed in: %d %s", res.StatusCode, body)
	}
	if res, _ := w.get(signInPath); res.StatusCode != 303 {
		t.Errorf("the sign-in page with a session: %d", res.StatusCode)
	}
	kept := w.cookies[cookieName]
	if res, _ := w.post(signOutPath, url.Values{}); res.StatusCode != 303 {
		t.Errorf("sign out: %d", res.StatusCode)
	}
	w.cookies[cookieName] = kept
	if res, _ := w.get(Path); res.StatusCode != 303 {
		t.Errorf("with the cookie of before: %d", res.StatusCode)
	}
}

// TestSecureCookie signs in on a server behind HTTPS.
func TestSecureCookie(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Secure = true })
	res, _ := w.post(signInPath, url.Values{"token": {"alice"}})
	if c := res.Cookies(); len(c) != 1 || !c[0].Secure || c[0].Name != secureCookieName || c[0].Path != "/" || c[0].Domain != "" {
		t.Errorf("the cookies are %+v", c)
	}
	if res, _ := w.get(Path); res.StatusCode != 200 {
		t.Errorf("signed in: %d", res.StatusCode)
	}
	// A page of a sandbox below the same domain can set the cookie with the plain name.
	r := w.request("GET", Path, nil)
	r.Header.Set("Cookie", cookieName+"="+res.Cookies()[0].Value)
	rec := httptest.NewRecorder()
	w.server.Authenticate(w.server).ServeHTTP(rec, r)
	if rec.Code == 200 {
		t.Error("a session by the plain cookie counts")
	}
}

// TestForeignPages has pages of other origins use the session of a browser.
func TestForeignPages(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	stop := Path + "sandboxes/" + box + "/stop"
	for _, test := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"POST", stop, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", stop, []string{"Sec-Fetch-Site", "same-site", "Origin", "http://3000-sbx.box.example.com"}, 403},
		{"POST", stop, []string{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, 403},
		{"POST", stop, []string{"Sec-Fetch-Site", "", "Origin", "null"}, 403},
		{"POST", stop, []string{"Sec-Fetch-Site", ""}, 403},
		{"POST", signInPath, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", signOutPath, []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", Path, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", Path + "events", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"GET", Path, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"GET", Path, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", Path, []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", Path, []string{"Sec-Fetch-Site", ""}, 200},
		{"POST", stop, []string{"Sec-Fetch-Site", "", "Origin", "http://box.example.com"}, 303},
	} {
		var form url.Values
		if test.method == "POST" {
			form = url.Values{}
		}
		res, _ := w.do(w.request(test.method, test.path, form, test.headers...))
		if res.StatusCode != test.want {
			t.Errorf("%s %s with %q: %d, want %d", test.method, test.path, test.headers, res.StatusCode, test.want)
		}
		if csp := res.Header.Get("Content-Security-Policy"); test.want == 200 && (strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'")) {
			t.Errorf("policy %q", csp)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s may read it", got)
		}
	}
	if len(w.engine.stopped) != 1 {
		t.Errorf("stopped: %v", w.engine.stopped)
	}
}

// TestEndOfSessions ends sessions in each way.
func TestEndOfSessions(t *testing.T) {
	for name, end := range map[string]func(*world){
		"idle":    func(w *world) { w.now = w.now.Add(sessionIdle) },
		"revoked": func(w *world) { w.verifier.revoke(alice) },
		"expired": func(w *world) { w.now = w.verifier.expires },
		"evicted": func(w *world) {
			own := w.cookies
			w.now = w.now.Add(time.Second)
			for range maxOfPrincipal {
				w.cookies = map[string]string{}
				w.server.sessions.begin(auth.Identity{Principal: alice}, false)
			}
			w.cookies = own
		},
		"too long": func(w *world) {
			w.verifier.expires = time.Time{}
			w.signIn("alice")
			for range sessionTTL/time.Hour - 1 {
				w.now = w.now.Add(time.Hour)
				if res, _ := w.get(Path); res.StatusCode != 200 {
					w.Fatalf("a used session ended before: %d", res.StatusCode)
				}
			}
			w.now = w.now.Add(time.Hour)
		},
		"from elsewhere": func(w *world) {
			w.remote = "127.0.0.1:1"
			w.signIn("alice")
			if res, _ := w.get(Path); res.StatusCode != 200 {
				w.Fatalf("from this machine: %d", res.StatusCode)
			}
			w.remote = "192.0.2.1:1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.verifier.expires = w.now.Add(time.Hour)
			w.signIn("alice")
			if res, _ := w.get(Path); res.StatusCode != 200 {
				t.Fatalf("before: %d", res.StatusCode)
			}
			end(w)
			if res, _ := w.get(Path); res.StatusCode != 303 {
				t.Errorf("after: %d", res.StatusCode)
			}
		})
	}
}

// TestLocalSessionThroughProxy: a session that began on this machine does not work through
// a proxy of this machine, even if the proxy says that its client is here, too.
func TestLocalSessionThroughProxy(t *testing.T) {
	w := newWorld(t, nil)
	w.remote = "127.0.0.1:1"
	w.signIn("alice")
	for forwarded, want := range map[bool]int{false: 200, true: 303} {
		r := w.request("GET", Path, nil)
		if res, _ := w.do(r.WithContext(auth.WithRemote(r.Context(), r.RemoteAddr, forwarded))); res.StatusCode != want {
			t.Errorf("forwarded %t: %d, want %d", forwarded, res.StatusCode, want)
		}
	}
}

// TestManySessions begins more sessions than are kept.
func TestManySessions(t *testing.T) {
	w := newWorld(t, nil)
	for i := range maxSessions + 10 {
		w.now = w.now.Add(time.Millisecond)
		w.server.sessions.begin(auth.Identity{Principal: sandbox.Principal(rune(i + 1000))}, false)
	}
	if n := len(w.server.sessions.set); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
}

func TestOneTimeLink(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.TokenForm = false })
	link := func() string {
		t.Helper()
		path, _, err := w.server.Link(auth.Identity{Principal: alice, Scopes: []auth.Scope{auth.ScopeRun}})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := link()
	if res, _ := w.do(w.request(http.MethodHead, path, nil)); res.StatusCode != 403 {
		t.Errorf("HEAD: %d", res.StatusCode)
	}
	if res, _ := w.get(path, "Sec-Purpose", "prefetch"); res.StatusCode != 403 {
		t.Errorf("a prefetch: %d", res.StatusCode)
	}
	res, body := w.get(path, "Sec-Fetch-Site", "none")
	if res.StatusCode != 200 || !strings.Contains(body, `content="0;url=/ui/arrived"`) {
		t.Fatalf("the first use: %d %s", res.StatusCode, body)
	}
	w.arrive(Path)
	if res, body := w.get(Path); res.StatusCode != 200 || !strings.Contains(body, box) {
		t.Errorf("signed in: %d %s", res.StatusCode, body)
	}
	clear(w.cookies)
	if res, _ := w.get(path); res.StatusCode != 401 {
		t.Errorf("the second use: %d", res.StatusCode)
	}
	late := link()
	w.now = w.now.Add(linkTTL)
	if res, _ := w.get(late); res.StatusCode != 401 {
		t.Errorf("a late use: %d", res.StatusCode)
	}
	revoked := link()
	w.verifier.revoke(alice)
	if res, _ := w.get(revoked); res.StatusCode != 401 {
		t.Errorf("of a revoked token: %d", res.StatusCode)
	}
	if len(w.cookies) != 0 {
		t.Errorf("the cookies are %v", w.cookies)
	}
	for range maxLinks {
		link()
	}
	if _, _, err := w.server.Link(auth.Identity{Principal: alice, Scopes: []auth.Scope{auth.ScopeRun}}); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("one link too many: %v", err)
	}
	if _, _, err := w.server.Link(auth.Identity{Principal: alice}); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("a link without the scope run: %v", err)
	}
	if res, body := w.get(signInPath); strings.Contains(body, `name="token"`) {
		t.Errorf("there is a form for tokens: %d %s", res.StatusCode, body)
	}
	if res, _ := w.post(signInPath, url.Values{"token": {"alice"}}); res.StatusCode != 403 {
		t.Errorf("a token: %d", res.StatusCode)
	}
}

// TestAttempts makes more attempts to sign in than one address may.
func TestAttempts(t *testing.T) {
	w := newWorld(t, nil)
	for range attemptBurst {
		w.post(signInPath, url.Values{"token": {"wrong"}})
	}
	if res, _ := w.post(signInPath, url.Values{"token": {"alice"}}); res.StatusCode != 429 {
		t.Errorf("one attempt too many: %d", res.StatusCode)
	}
	w.remote = "192.0.2.2:1"
	w.signIn("alice")
}

func TestNextPage(t *testing.T) {
	for next, want := range map[string]string{
		"":                           Path,
		"/ui/runs/x":                 "/ui/runs/x",
		"https://evil.example/ui/":   Path,
		"//evil.example/ui/":         Path,
		"/ui/\\evil.example":         Path,
		"/mcp":                       Path,
		"/ui/open?code=x":            Path,
		"javascript:alert(1)//":      Path,
		"/ui/\r\nSet-Cookie: a=b":    Path,
		"/ui/sandboxes/%3Cscript%3E": "/ui/sandboxes/%3Cscript%3E",
	} {
		if got := nextPage(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

// TestSignOutEndsStreams: a stream of events ends when the session does, by a sign-out
// and by newer sessions of the principal.
func TestSignOutEndsStreams(t *testing.T) {
	for name, end := range map[string]func(*world){
		"SignOut": func(w *world) {
			if res, body := w.post(signOutPath, nil); res.StatusCode != http.StatusSeeOther {
				w.Fatalf("sign out: %d %s", res.StatusCode, body)
			}
		},
		"NewerSessions": func(w *world) {
			clear(w.cookies)
			for range maxOfPrincipal {
				w.server.sessions.begin(auth.Identity{Principal: alice}, false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *Options) { o.Now = time.Now })
				w.signIn("alice")
				r := w.request("GET", Path+"events", nil)
				ended := make(chan struct{})
				go func() {
					w.server.Authenticate(w.server).ServeHTTP(httptest.NewRecorder(), r)
					close(ended)
				}()
				time.Sleep(time.Minute)
				select {
				case <-ended:
					t.Fatal("the stream ended before the session")
				default:
				}
				end(w)
				select {
				case <-ended:
				case <-time.After(time.Minute):
					t.Fatal("the stream goes on after the session")
				}
			})
		})
	}
}

// TestReader: a token that only reads sees the pages without what changes something, and
// is refused each request that does, also a GET.
func TestReader(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("reader")
	at := Path + "sandboxes/" + box
	for _, path := range []string{at, at + "/files", Path + "runs/" + theRun} {
		res, body := w.get(path)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d", path, res.StatusCode)
		}
		for _, no := range []string{"/terminal\"", "/preview\"", "/stop\"", "/hibernate\"", "/snapshots\"", "/rollback\"", "/delete\"", "/fork\"", "multipart/form-data"} {
			if strings.Contains(body, no) {
				t.Errorf("%s has %s", path, no)
			}
		}
	}
	for _, path := range []string{at + "/terminal/socket?cols=80&rows=24", at + "/preview?port=8000"} {
		if res, _ := w.get(path, "Origin", "http://box.example.com"); res.StatusCode != http.StatusForbidden {
			t.Errorf("GET %s: %d", path, res.StatusCode)
		}
	}
	if _, body := w.get(at); !strings.Contains(body, "3 MiB") {
		t.Errorf("a reader does not see the snapshots:\n%s", body)
	}
	for _, path := range []string{at + "/stop", at + "/hibernate", at + "/terminal", at + "/snapshots", at + "/snapshots/" + theSnapshot + "/rollback",
		at + "/snapshots/" + theSnapshot + "/delete", at + "/fork", Path + "try"} {
		if res, _ := w.post(path, nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s: %d", path, res.StatusCode)
		}
	}
	clear(w.cookies)
	w.signIn("alice")
	if len(w.engine.actions) > 0 {
		t.Errorf("a reader did %v", w.engine.actions)
	}
	if _, body := w.get(at); !strings.Contains(body, "/terminal\"") || !strings.Contains(body, "/stop\"") || !strings.Contains(body, "/rollback\"") {
		t.Error("a member's page lacks what changes the sandbox")
	}
}

package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func withIssuer(o *Options) { o.Issuer = "https://login.example.com/realms/a/" }

// back is the path to which the issuer of a test sends people.
func back(code string) string {
	return IssuerBackPath + "?" + url.Values{"state": {"state"}, "code": {code}}.Encode()
}

// TestIssuerFlow begins and ends sign-ins at an issuer: late, twice, by other programs
// than browsers, and with cookies for HTTPS.
func TestIssuerFlow(t *testing.T) {
	w := newWorld(t, withIssuer)
	w.server.opts.Secure = true
	if _, body := w.get(signInPath); !strings.Contains(body, "Sign in with login.example.com/realms/a<") {
		t.Errorf("the page is\n%s", body)
	}
	begin := func() *http.Response {
		t.Helper()
		res, body := w.get(issuerPath+"?next=/ui/try", "Sec-Fetch-Site", "same-origin")
		if res.StatusCode != 303 || res.Header.Get("Location") != "https://issuer.test/in" {
			t.Fatalf("begin: %d\n%s", res.StatusCode, body)
		}
		return res
	}
	c := begin().Cookies()[0]
	if c.Name != secureFlowCookie || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" || c.MaxAge != 600 {
		t.Errorf("the cookie is %v", c)
	}
	if res, _ := w.get(back("alice"), "Sec-Purpose", "prefetch"); res.StatusCode != 403 {
		t.Errorf("a prefetch: %d", res.StatusCode)
	}
	res, body := w.get(back("alice"), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if res.StatusCode != 200 || !strings.Contains(body, `content="0;url=/ui/arrived"`) || w.cookies[secureFlowCookie] != "" {
		t.Errorf("back: %d, cookies %v\n%s", res.StatusCode, w.cookies, body)
	}
	if c := res.Cookies()[1]; c.Name != secureArrivalCookie || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.MaxAge != 60 {
		t.Errorf("the cookie of the arrival is %v", c)
	}
	if res, _ := w.get(Path); res.StatusCode != 303 {
		t.Errorf("before the session: %d", res.StatusCode)
	}
	w.arrive("/ui/try")
	if res, _ := w.get(Path); res.StatusCode != 200 {
		t.Errorf("signed in: %d", res.StatusCode)
	}
	clear(w.cookies)
	begin()
	w.now = w.now.Add(flowTTL)
	if res, _ := w.get(back("alice")); res.StatusCode != 401 {
		t.Errorf("a late answer: %d", res.StatusCode)
	}
	begin()
	if res, body := w.get(back("files-only")); res.StatusCode != 403 || !strings.Contains(body, "none of the scopes") {
		t.Errorf("without a scope: %d\n%s", res.StatusCode, body)
	}
	begin()
	if res, body := w.get(back("wrong")); res.StatusCode != 401 || !strings.Contains(body, "The sign-in failed") {
		t.Errorf("a wrong code: %d\n%s", res.StatusCode, body)
	}
	w.verifier.down = sandbox.Errorf(sandbox.Unavailable, "no route to 10.0.0.1")
	if res, body := w.get(issuerPath); res.StatusCode != 503 || !strings.Contains(body, "does not answer") || strings.Contains(body, "10.0.0.1") {
		t.Errorf("an issuer that is away: %d\n%s", res.StatusCode, body)
	}
	w = newWorld(t, nil)
	for _, path := range []string{issuerPath, back("alice")} {
		if res, _ := w.get(path); res.StatusCode == 200 || res.StatusCode == 303 {
			t.Errorf("%s without an issuer: %d", path, res.StatusCode)
		}
	}
}

// TestManyFlows begins more sign-ins than are kept, and more than one address may.
func TestManyFlows(t *testing.T) {
	w := newWorld(t, withIssuer)
	first, _ := w.server.flows.put(flow{SignIn: auth.SignIn{State: "first"}})
	var last string
	for range maxFlows {
		w.now = w.now.Add(1)
		last, _ = w.server.flows.put(flow{})
	}
	if _, ok := w.server.flows.take(first); ok || len(w.server.flows.set) != maxFlows {
		t.Errorf("the first one is kept: %t; %d flows", ok, len(w.server.flows.set))
	}
	if _, ok := w.server.flows.take(last); !ok {
		t.Error("the last one is not kept")
	}
	w.now = w.now.Add(flowTTL)
	w.server.flows.put(flow{})
	if n := len(w.server.flows.set); n != 1 {
		t.Errorf("%d flows after their time", n)
	}
	for range attemptBurst {
		w.get(issuerPath)
	}
	if res, _ := w.get(issuerPath); res.StatusCode != 429 {
		t.Errorf("one attempt too many: %d", res.StatusCode)
	}
}

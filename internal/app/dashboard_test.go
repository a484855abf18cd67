package app

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDashboard has a command make a link to the dashboard. A browser opens it, sees
// the sandboxes of that token only, and follows a page until the token is revoked.
func TestDashboard(t *testing.T) {
	sys, base := serveHTTP(t, func(o *Options) { o.Detached = true })
	waitServing(t, base)
	if _, err := OpenDashboard(t.Context(), sys.Config(), ""); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("without a token: %v", err)
	}
	ids := map[string]string{}
	for _, name := range []string{"alice", "bob"} {
		if _, _, err := sys.auth.Create(t.Context(), name, auth.ScopeRun); err != nil {
			t.Fatal(err)
		}
		box, err := sys.Engine.Create(t.Context(), sandbox.TokenPrincipal(name), sandbox.CreateRequest{Name: "of-" + name})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = box.ID
		t.Cleanup(func() { // it would outlive the server
			if err := sys.Engine.Stop(context.Background(), sandbox.TokenPrincipal(name), box.ID); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := OpenDashboard(t.Context(), sys.Config(), ""); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("with two tokens: %v", err)
	}
	if _, err := OpenDashboard(t.Context(), sys.Config(), "carol"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("of nobody: %v", err)
	}
	link, err := OpenDashboard(t.Context(), sys.Config(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(link.URL, base+"/ui/open?code=") || link.Principal != "token:alice" || time.Until(link.Expires) > time.Minute {
		t.Fatalf("the link is %+v", link)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(url string) (*http.Response, string) {
		t.Helper()
		res, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}
	if res, body := get(link.URL); res.StatusCode != 200 {
		t.Fatalf("the link: %d %s", res.StatusCode, body)
	}
	if res, body := get(base + "/ui/arrived"); res.StatusCode != 200 || res.Request.URL.Path != "/ui/" {
		t.Fatalf("after the link: %d %s at %s", res.StatusCode, body, res.Request.URL)
	}
	if _, body := get(base + "/ui/"); !strings.Contains(body, "of-alice") || strings.Contains(body, "of-bob") {
		t.Errorf("the page is\n%s", body)
	}
	for name, want := range map[string]int{"alice": 200, "bob": 404} {
		if res, body := get(base + "/ui/sandboxes/" + ids[name]); res.StatusCode != want {
			t.Errorf("the sandbox of %s: %d %s", name, res.StatusCode, body)
		}
	}
	res, err := browser.Get(base + "/ui/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: page\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	if _, err := sys.auth.Revoke(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil { // it ends, or the test does not
		t.Logf("the stream ended with %v", err)
	}
	if res, body := get(base + "/ui/"); res.Request.URL.Path != "/ui/signin" || strings.Contains(body, "of-alice") {
		t.Errorf("after the end of the token: %s\n%s", res.Request.URL, body)
	}
}

// TestNoDashboard turns the dashboard off.
func TestNoDashboard(t *testing.T) {
	sys, base := serveHTTP(t, func(o *Options) { o.Detached, o.Config.Server.Dashboard = true, false })
	waitServing(t, base)
	if _, err := OpenDashboard(t.Context(), sys.Config(), ""); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a link: %v", err)
	}
	for _, path := range []string{"/", "/ui/", "/ui/signin"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/html")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 404 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

// waitServing returns when the server answers.
func waitServing(t *testing.T, base string) {
	t.Helper()
	res, err := http.Get(base + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

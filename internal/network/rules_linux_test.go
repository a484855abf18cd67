package network

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ruleValue is the value of the tests' header rule.
const ruleValue = "Bearer only-the-host-may-know"

func mustRule(t *testing.T, host, header, value string) sandbox.Secret {
	t.Helper()
	r, err := sandbox.NewHeaderRule(host, header, value)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newRuleWorld is a secretWorld with header rules besides its secrets.
func newRuleWorld(t *testing.T, n sandbox.Network, rules ...sandbox.Secret) *secretWorld {
	t.Helper()
	w := newSecretWorld(t, n)
	if err := w.g.Change(n, rules); err != nil {
		t.Fatal(err)
	}
	return w
}

// ask sends one request from the sandbox and returns the answer's status and text.
func (w *secretWorld) ask(c *http.Client, req *http.Request) (*http.Response, string) {
	w.t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// TestRule has each request to the host of a rule have its header once, whatever the
// program sends.
func TestRule(t *testing.T) {
	for _, policy := range []sandbox.Network{"web.example", sandbox.NetworkInternet} {
		w := newRuleWorld(t, policy, mustRule(t, "web.example", "authorization", ruleValue),
			mustRule(t, "WEB.example:443", "X-Team-Id", "7"), mustRule(t, "web.example", "X-Own", "key "+ownPlaceholder))
		for _, http2 := range []bool{false, true} {
			client := w.client("web.example", webAddr, 443, http2)
			for name, sent := range map[string]http.Header{
				"nothing":     {},
				"another":     {"Authorization": {"Bearer mine", "Bearer mine too"}, "X-Team-Id": {"8"}},
				"underscores": {"X_team_id": {"8"}, "x_Team-id": {"9"}},
				"hop by hop":  {"Connection": {"Authorization, X-Team-Id"}, "Authorization": {"Bearer mine"}},
			} {
				if http2 && sent.Get("Connection") != "" {
					continue // HTTP/2 has no such header
				}
				req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
				req.Header = sent
				if _, text := w.ask(client, req); !strings.HasPrefix(text, "hello over") {
					t.Errorf("%s, %s: the answer is %q", policy, name, text)
				}
				seen := w.requests()
				if len(seen) != 1 {
					t.Fatalf("%s, %s: the server saw %d requests", policy, name, len(seen))
				}
				got := http.Header{}
				for name, values := range seen[0].header {
					if name == "Authorization" || strings.HasPrefix(strings.ToLower(name), "x") {
						got[name] = values
					}
				}
				want := http.Header{"Authorization": {ruleValue}, "X-Team-Id": {"7"}, "X-Own": {"key " + ownSecret}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s, HTTP/2 %v: -want +got\n%s", policy, name, http2, diff)
				}
			}
		}
	}
}

// TestRuleGoesNowhereElse has every other server, name, port and address see
// nothing of a rule's header.
func TestRuleGoesNowhereElse(t *testing.T) {
	w := newRuleWorld(t, sandbox.NetworkInternet, mustRule(t, "web.example", "Authorization", ruleValue))
	w.mustLookup("other.example", "shared.example")
	for _, c := range []struct {
		name string
		at   string
		port uint16
	}{
		{"other.example", "other", 443},
		{"shared.example", "web", 443},
		{"web.example", "web", 8443},
		{"web.example", "other", 443},
	} {
		addr := webAddr
		if c.at == "other" {
			addr = otherAddr
		}
		conn := w.mustTLS(addr, c.port, w.trust(c.name, "http/1.1"))
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Errorf("%s at %s port %d: %v", c.name, addr, c.port, err)
		}
	}
	// Another host over the connection to this one.
	conn := w.mustTLS(webAddr, 443, w.trust("web.example", "http/1.1"))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: shared.example\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another Host header: %v, %v", resp, err)
	}
	seen := w.requests()
	if len(seen) != 4 {
		t.Errorf("the server saw %d requests", len(seen))
	}
	for _, r := range seen {
		if r.header.Get("Authorization") != "" {
			t.Errorf("%s: Authorization: %s", r.host, r.header.Get("Authorization"))
		}
	}
	// A server that does not prove to be the host gets nothing.
	wrong, err := w.public.certificate("other.example")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.cert = wrong
	w.mu.Unlock()
	req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
	if resp, text := w.ask(w.client("web.example", webAddr, 443, false), req); resp.StatusCode != http.StatusBadGateway || !strings.Contains(text, "certificate") {
		t.Errorf("a wrong certificate: %s, %s", resp.Status, text)
	}
	if seen := w.requests(); len(seen) != 0 {
		t.Errorf("the wrong server saw %+v", seen)
	}
}

// TestRuleInTheClear refuses requests without TLS to the host of a rule, and to no
// other host of its address.
func TestRuleInTheClear(t *testing.T) {
	for _, policy := range []sandbox.Network{"web.example,shared.example", sandbox.NetworkInternet} {
		w := newRuleWorld(t, policy, mustRule(t, "web.example", "Authorization", ruleValue))
		w.mustLookup("shared.example")
		for text, want := range map[string]int{
			"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n":                         http.StatusForbidden,
			"GET / HTTP/1.1\r\nHost: WEB.example:80\r\n\r\n":                      http.StatusForbidden,
			"GET http://web.example/ HTTP/1.1\r\nHost: shared.example\r\n\r\n":    http.StatusForbidden,
			"GET / HTTP/1.1\r\nHost: shared.example\r\nConnection: close\r\n\r\n": http.StatusOK,
		} {
			conn := w.mustConnect(webAddr, 80)
			fmt.Fprint(conn, text)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s, %q: %v, %v", policy, text, resp, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			if want == http.StatusForbidden && !strings.Contains(string(body), "Use https://") {
				t.Errorf("%s, %q: the answer is %q", policy, text, body)
			}
		}
		if seen := w.requests(); len(seen) != 1 || seen[0].host != "shared.example" {
			t.Errorf("%s: the server saw %+v", policy, seen)
		}
	}
}

// TestRuleAnswers keeps the value out of the headers of answers, and out of TRACE.
func TestRuleAnswers(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:correct-horse"))
	for _, value := range []string{ruleValue, basic} {
		w := newRuleWorld(t, "web.example", mustRule(t, "web.example", "Authorization", value), mustRule(t, "web.example", "X-Api-Key", "the-hidden-value"),
			mustRule(t, "web.example", "Accept", "text/plain; charset=utf-8"))
		client := w.client("web.example", webAddr, 443, false)
		req, _ := http.NewRequest(http.MethodGet, "https://web.example/echo", nil)
		resp, text := w.ask(client, req)
		all := fmt.Sprint(resp.Header, resp.Trailer)
		_, credentials, _ := strings.Cut(value, " ")
		for _, secret := range []string{credentials, "the-hidden-value", "THE-HIDDEN-VALUE", "The-Hidden-Value"} {
			if strings.Contains(all, secret) {
				t.Errorf("the answer has %s: %s", secret, all)
			}
		}
		if text != "echo" || !strings.Contains(all, "(hidden)") || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("the answer is %q with %s", text, all)
		}
		req, _ = http.NewRequest(http.MethodTrace, "https://web.example/", nil)
		w.requests()
		if resp, _ := w.ask(client, req); resp.StatusCode != http.StatusMethodNotAllowed || len(w.requests()) != 0 {
			t.Errorf("TRACE: %s", resp.Status)
		}
	}
}

// TestRuleLost refuses a host whose rule has no value any more.
func TestRuleLost(t *testing.T) {
	lost := mustRule(t, "web.example", "Authorization", ruleValue)
	lost.Value = sandbox.NewSecretValue("")
	w := newRuleWorld(t, sandbox.NetworkInternet, lost)
	w.mustLookup("shared.example")
	if err := tls.Client(w.mustConnect(webAddr, 443), w.trust("web.example", "http/1.1")).Handshake(); err == nil {
		t.Error("the host with the lost rule is reached")
	}
	w.mustTLS(webAddr, 443, w.trust("shared.example", "http/1.1")).Close()
	if seen := w.requests(); len(seen) != 0 {
		t.Errorf("the server saw %+v", seen)
	}
	blocked := slices.ContainsFunc(w.g.Traffic(0).Destinations, func(d sandbox.Destination) bool {
		return d.Host == "web.example" && d.Blocked == sandbox.BlockedLost
	})
	if !blocked {
		t.Errorf("the traffic is %+v", w.g.Traffic(0))
	}
	// A new value opens the host again.
	if err := w.g.Change(sandbox.NetworkInternet, []sandbox.Secret{mustRule(t, "web.example", "Authorization", ruleValue)}); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
	w.ask(w.client("web.example", webAddr, 443, false), req)
	if seen := w.requests(); len(seen) != 1 || seen[0].header.Get("Authorization") != ruleValue {
		t.Errorf("with a new value the server saw %+v", seen)
	}
}

// TestRuleChange replaces rules while a connection is open, and gives a host of a
// later rule an authority of its own.
func TestRuleChange(t *testing.T) {
	w := newRuleWorld(t, sandbox.NetworkInternet, mustRule(t, "web.example", "Authorization", ruleValue))
	w.mustLookup("other.example")
	get := func(client *http.Client, name string) string {
		t.Helper()
		req, _ := http.NewRequest(http.MethodGet, "https://"+name+"/", nil)
		w.ask(client, req)
		seen := w.requests()
		return seen[len(seen)-1].header.Get("Authorization")
	}
	client := w.client("web.example", webAddr, 443, false)
	if got := get(client, "web.example"); got != ruleValue {
		t.Fatalf("Authorization: %s", got)
	}
	before := len(w.g.inserts.Load().authorities)
	if err := w.g.Change(sandbox.NetworkInternet, []sandbox.Secret{mustRule(t, "other.example", "Authorization", "Bearer next")}); err != nil {
		t.Fatal(err)
	}
	if got := get(client, "web.example"); got != "" { // over a new connection
		t.Errorf("after its removal the server sees %s", got)
	}
	if got := get(w.client("other.example", otherAddr, 443, true), "other.example"); got != "Bearer next" {
		t.Errorf("the next rule: %s", got)
	}
	authorities := w.g.inserts.Load().authorities
	if len(authorities) != before+1 || authorities[before].covers("web.example") || !authorities[before].covers("other.example") {
		t.Errorf("there are %d authorities", len(authorities))
	}
	// The same hosts need no other one. Nil keeps the rules, and none clears them.
	for i, c := range []struct {
		rules []sandbox.Secret
		want  string
	}{
		{[]sandbox.Secret{mustRule(t, "other.example", "Authorization", "Bearer last")}, "Bearer last"},
		{nil, "Bearer last"},
		{[]sandbox.Secret{}, ""},
	} {
		if err := w.g.Change(sandbox.NetworkInternet, c.rules); err != nil {
			t.Fatal(err)
		}
		if got := get(w.client("other.example", otherAddr, 443, false), "other.example"); got != c.want || len(w.g.inserts.Load().authorities) != before+1 {
			t.Errorf("change %d: %s, %d authorities", i, got, len(w.g.inserts.Load().authorities))
		}
	}
	for i := range maxAuthorities {
		err := w.g.Change(sandbox.NetworkInternet, []sandbox.Secret{mustRule(t, fmt.Sprintf("h%d.example", i), "A", "b")})
		if tooMany := before+1+i >= maxAuthorities; errors.Is(err, sandbox.Exhausted) != tooMany || err != nil && sandbox.HintOf(err) == "" {
			t.Errorf("other hosts, time %d: %v", i, err)
		}
	}
	// A sandbox without an authority gets none later.
	plain := newWorld(t, sandbox.NetworkInternet, sandbox.NetworkTerms{})
	if err := plain.g.Change(sandbox.NetworkInternet, []sandbox.Secret{mustRule(t, "web.example", "A", "b")}); !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("without an authority: %v", err)
	}
	if err := plain.g.Change("web.example", []sandbox.Secret{}); err != nil || plain.g.network() != "web.example" {
		t.Errorf("no rules: %v, %s", err, plain.g.network())
	}
}

// TestKeepRules has a later process know the hosts of rules, without values.
func TestKeepRules(t *testing.T) {
	dir := t.TempDir()
	rule, key := mustRule(t, "web.example", "Authorization", ruleValue), sandbox.Secret{Name: "KEY", Hosts: "web.example:443", Value: sandbox.NewSecretValue(ruleValue)}
	if got, err := keepRules(dir, []sandbox.Secret{key}); err != nil || len(got) != 1 {
		t.Errorf("before: %+v, %v", got, err)
	}
	if got, err := keepRules(dir, []sandbox.Secret{key, rule}); err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, rulesFile))
	if err != nil || !strings.Contains(string(text), "Authorization") || strings.Contains(string(text), "only-the-host") {
		t.Errorf("the file holds %s, %v", text, err)
	}
	got, err := keepRules(dir, nil)
	if err != nil || len(got) != 1 || !got[0].IsLost() || !got[0].IsFor("web.example", 443) {
		t.Errorf("later: %+v, %v", got, err)
	}
	if err := writeRules(dir, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := keepRules(dir, nil); err != nil || len(got) != 0 {
		t.Errorf("without rules: %+v, %v", got, err)
	}
}

// TestRulesOfLostReply loses the reply to a change: the process may have the old rules
// or the new ones, so a later process knows the hosts of both.
func TestRulesOfLostReply(t *testing.T) {
	dir := t.TempDir()
	old, next := mustRule(t, "old.example", "Authorization", ruleValue), mustRule(t, "new.example", "Authorization", ruleValue)
	if err := writeRules(dir, []sandbox.Secret{old}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, controlSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var req request
			if json.NewDecoder(c).Decode(&req) == nil && n == 0 {
				json.NewEncoder(c).Encode(&reply{Ruled: true})
			}
			c.Close()
		}
	}()
	if err := Change(t.Context(), dir, sandbox.NetworkInternet, []sandbox.Secret{next}); !errors.Is(err, sandbox.Unavailable) {
		t.Fatalf("a lost reply: %v", err)
	}
	kept, err := readRules(dir)
	if err != nil || len(kept) != 2 || kept[0].Hosts != old.Hosts || kept[1].Hosts != next.Hosts {
		t.Errorf("the file has %+v, %v", kept, err)
	}
}

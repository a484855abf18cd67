package e2bapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pythonHeaders are the headers of the control plane that the Python package e2b
// 2.34.0 sends.
func pythonHeaders(key string) []string {
	return []string{
		"X-API-KEY", Key(key), "Accept", "*/*", "Content-Type", "application/json", "User-Agent", "e2b-python-sdk/2.34.0",
		"lang", "python", "lang_version", "3.13.1", "package_version", "2.34.0", "publisher", "e2b", "sdk_runtime", "python", "system", "Linux",
	}
}

// decodeJSON decodes an answer.
func decodeJSON[T any](t *testing.T, body string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

// TestPython sends the requests of the Python package e2b 2.34.0, which has
// defaults that the JavaScript package does not send.
func TestPython(t *testing.T) {
	e, _, srv := newTest(t)
	e.allowed = "pypi.org"
	status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"templateID": "base", "allow_internet_access": true, "autoPause": false, "autoResume": {"enabled": false}, "envVars": {}, "metadata": {}, "network": {"allowOut": ["pypi.org"], "allowPublicTraffic": true, "denyOut": ["0.0.0.0/0"]}, "secure": true, "timeout": 300}`, pythonHeaders("alice")...)
	if status != 201 || e.created.Network != "pypi.org" {
		t.Fatalf("create: status %d, %s, network %q", status, body, e.created.Network)
	}
	status, _, body = do(t, "POST", srv.URL+"/sandboxes", `{"templateID": "base", "allow_internet_access": true, "autoPause": true, "autoPauseMemory": true, "autoResume": {"enabled": true}, "envVars": {"A": "b"}, "metadata": {"c": "d"}, "secure": true, "timeout": 86400}`, pythonHeaders("alice")...)
	made := decodeJSON[sandboxAnswer](t, body)
	if status != 201 || e.created.Network != "pypi.org" || e.created.TTL != 24*time.Hour || strings.Contains(made.SandboxID, "_") {
		t.Fatalf("create: status %d, %s, asks for %+v", status, body, e.created)
	}
	// The client reads these fields of the detail, and fails if one is missing.
	_, _, body = do(t, "GET", srv.URL+"/sandboxes/"+made.SandboxID, "", pythonHeaders("alice")...)
	detail := decodeJSON[map[string]any](t, body)
	for _, name := range []string{"clientID", "cpuCount", "diskSizeMB", "endAt", "envdVersion", "memoryMB", "sandboxID", "startedAt", "state", "templateID"} {
		if detail[name] == nil {
			t.Errorf("the detail has no %s: %s", name, body)
		}
	}
	if detail["sandboxID"] != made.SandboxID {
		t.Errorf("the detail names %v, want %s", detail["sandboxID"], made.SandboxID)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/connect", `{"timeout": 300}`, 200},
		{"POST", "/timeout", `{"timeout": 60}`, 204},
		{"PUT", "/network", `{"allow_internet_access": true}`, 204},
		{"PUT", "/network", `{"allowOut": ["pypi.org"], "denyOut": ["0.0.0.0/0"]}`, 204},
		{"POST", "/pause", `{"memory": true}`, 204},
		{"DELETE", "", "", 204},
		{"DELETE", "", "", 404},
	} {
		if status, _, body := do(t, c.method, srv.URL+"/sandboxes/"+made.SandboxID+c.path, c.body, pythonHeaders("alice")...); status != c.want {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, status, c.want, body)
		}
	}
	id := e.add("alice", nil)
	do(t, "POST", srv.URL+guestapi.ProcStart, "", "E2b-Sandbox-Id", sandbox.HostID(id), "E2b-Sandbox-Port", "49983", "X-Access-Token", "access-"+id,
		"Authorization", "Basic dXNlcjo=", "Keepalive-Ping-Interval", "50", "connect-protocol-version", "1", "connect-content-encoding", "identity",
		"connect-timeout-ms", "86400000.0", "content-type", "application/connect+json", "User-Agent", "e2b-python-sdk/2.34.0")
	want := http.Header{
		"Authorization": {"Basic dXNlcjo="}, "Connect-Protocol-Version": {"1"}, "Connect-Timeout-Ms": {"86400000.0"},
		"Content-Type": {"application/connect+json"}, "Keepalive-Ping-Interval": {"50"},
	}
	if diff := cmp.Diff(want, e.forwarded.Header); diff != "" {
		t.Errorf("the engine gets other headers of a command:\n%s", diff)
	}
	defaults := sandbox.ProgramDefaults{Dir: "~", Env: map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": sandbox.HostID(id), "E2B_TEMPLATE_ID": "host"}}
	if diff := cmp.Diff(defaults, e.defaults); diff != "" {
		t.Errorf("a command has other defaults:\n%s", diff)
	}
}

// TestGrants: a client that asks for everything gets what the operator allows, and
// the sandbox's detail says what that is.
func TestGrants(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		allowed      sandbox.Network
		body         string
		network      sandbox.Network
		internet     bool
		networkParts networkConfig
	}{
		"nothing is allowed":    {sandbox.NetworkNone, `{"allow_internet_access":true}`, sandbox.NetworkNone, false, networkConfig{DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"some hosts":            {"pypi.org,10.0.0.0/8", `{"allow_internet_access":true}`, "pypi.org", false, networkConfig{AllowOut: []string{"pypi.org"}, DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"everything, by a rule": {"pypi.org", `{"network":{"allowOut":["0.0.0.0/0"],"allowPublicTraffic":true}}`, "pypi.org", false, networkConfig{AllowOut: []string{"pypi.org"}, DenyOut: []string{all}, AllowPublicTraffic: &no}},
		"everything":            {sandbox.NetworkInternet, `{"allow_internet_access":true}`, sandbox.NetworkInternet, true, networkConfig{AllowPublicTraffic: &no}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _, srv := newTest(t)
			e.allowed = c.allowed
			_, _, body := do(t, "POST", srv.URL+"/sandboxes", c.body, "X-API-KEY", "alice")
			made := decodeJSON[sandboxAnswer](t, body)
			if e.created.Network != c.network {
				t.Errorf("the engine is asked for the network %q, want %q", e.created.Network, c.network)
			}
			_, _, body = do(t, "GET", srv.URL+"/sandboxes/"+made.SandboxID, "", "X-API-KEY", "alice")
			detail := decodeJSON[struct {
				AllowInternetAccess bool
				Network             networkConfig
			}](t, body)
			if diff := cmp.Diff(c.networkParts, detail.Network); diff != "" || detail.AllowInternetAccess != c.internet {
				t.Errorf("the detail says %s\n%s", body, diff)
			}
		})
	}
}

// TestNow: a timeout of zero is now.
func TestNow(t *testing.T) {
	e, _, srv := newTest(t)
	ends := func(id string) time.Time { return e.boxes[sandbox.CanonicalID(id)].Ends }
	status, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"timeout":0}`, "X-API-KEY", "alice")
	if id := decodeJSON[sandboxAnswer](t, body).SandboxID; status != 201 || !ends(id).Equal(now) {
		t.Errorf("create: status %d, ends at %v", status, ends(id))
	}
	running := e.add("alice", nil)
	paused := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Hibernated })
	for _, c := range []struct {
		id, path, body string
		status         int
		end            time.Time
	}{
		{running, "/connect", `{"timeout":0}`, 200, now.Add(time.Minute)}, // connecting never shortens
		{running, "/refreshes", `{"duration":0}`, 204, now.Add(time.Minute)},
		{paused, "/connect", `{"timeout":0}`, 201, now},
		{running, "/timeout", `{"timeout":0}`, 204, now},
		{running, "/timeout", `{"timeout":-1}`, 400, now},
	} {
		status, _, body := do(t, "POST", srv.URL+"/sandboxes/"+c.id+c.path, c.body, "X-API-KEY", "alice")
		if status != c.status || !ends(c.id).Equal(c.end) {
			t.Errorf("%s %s: status %d (%s), ends at %v; want %d, %v", c.path, c.body, status, body, ends(c.id), c.status, c.end)
		}
	}
}

// TestExpiredSignature: the owner of an old URL learns that it is old.
func TestExpiredSignature(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	before := fmt.Sprint(now.Unix() - 1)
	sum := sha256.Sum256([]byte("a:read::access-" + id + ":" + before))
	address := srv.URL + "/files?path=a&signature_expiration=" + before + "&signature=" + url.QueryEscape("v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	for _, headers := range [][]string{nil, {"E2b-Sandbox-Id", id}} {
		status, _, body := do(t, "GET", address, "", headers...)
		if status != 401 || body != `{"code":401,"message":"signature is already expired"}` {
			t.Errorf("with %q: %d %s", headers, status, body)
		}
	}
}

// TestClosedPorts: answers for ports have the form of E2B's proxy.
func TestClosedPorts(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	paused := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Hibernated })
	for name, c := range map[string]struct {
		id    string
		token []string
		want  portError
	}{
		"no token":       {id, nil, portError{sandbox.HostID(id), "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing", 0, 403}},
		"a bad token":    {id, []string{headerTraffic, "x"}, portError{sandbox.HostID(id), "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid", 0, 403}},
		"nobody there":   {id, []string{headerTraffic, "traffic-" + id}, portError{sandbox.HostID(id), "The sandbox is running but port is not open", 8080, 502}},
		"while it rests": {paused, []string{headerTraffic, "traffic-" + paused}, portError{sandbox.HostID(paused), "the sandbox is paused; connect to it to resume it", 8080, 502}},
	} {
		status, h, body := do(t, "GET", srv.URL+"/", "", append([]string{"Host", "8080-" + sandbox.HostID(c.id) + ".example.com"}, c.token...)...)
		if diff := cmp.Diff(c.want, decodeJSON[portError](t, body)); diff != "" || status != c.want.Code || !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
			t.Errorf("%s: status %d\n%s", name, status, diff)
		}
	}
}

// TestPublicPorts: a port needs no token if the operator and the sandbox's creator
// want that.
func TestPublicPorts(t *testing.T) {
	e, s, srv := newTest(t)
	prog := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "host "+r.Host) }))
	t.Cleanup(prog.Close)
	e.program = prog.Listener.Addr().String()
	create := func(body string) string {
		t.Helper()
		_, _, text := do(t, "POST", srv.URL+"/sandboxes", body, "X-API-KEY", "alice")
		return decodeJSON[sandboxAnswer](t, text).SandboxID
	}
	before := create(`{}`)
	s.opts.PublicPorts = true
	open := create(`{"network":{"allowPublicTraffic":true,"maskRequestHost":"app.example.com:${PORT}"}}`)
	byDefault := create(`{}`)
	closed := create(`{"network":{"allowPublicTraffic":false}}`)
	own := e.add("alice", nil)
	stopped := e.add("alice", func(sb *sandbox.Sandbox) {
		sb.State, sb.Labels = sandbox.Stopped, map[string]string{labelPublic: "true"}
	})
	endedClosed := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Stopped })
	check := func(id, port string, want int, wantBody string) {
		t.Helper()
		status, _, body := do(t, "GET", srv.URL+"/", "", "Host", port+"-"+sandbox.HostID(id)+".example.com")
		if status != want || wantBody != "" && body != wantBody {
			t.Errorf("port %s: status %d, %s; want %d, %s", port, status, body, want, wantBody)
		}
	}
	reports := func(id, want string) {
		t.Helper()
		if _, _, body := do(t, "GET", srv.URL+"/sandboxes/"+id, "", "X-API-KEY", "alice"); !strings.Contains(body, `"allowPublicTraffic":`+want) {
			t.Errorf("the detail is %s, want %s", body, want)
		}
	}
	check(open, "8080", 200, "host app.example.com:8080")
	check(byDefault, "8080", 200, "host localhost:8080")
	check(open, "49983", 401, "")
	check(open, "49999", 401, "")
	check(closed, "8080", 403, "")
	check(before, "8080", 403, "")                                                                                                                     // the option was not set when it was made
	check(own, "8080", 403, "")                                                                                                                        // another protocol made it
	check(stopped, "8080", 502, fmt.Sprintf(`{"sandboxId":%q,"message":"The sandbox was not found","port":8080,"code":502}`, sandbox.HostID(stopped))) // who had its address learns that it has ended
	check(endedClosed, "8080", 403, "")
	check(sandbox.NewID(), "8080", 403, "")
	reports(open, "true")
	reports(closed, "false")
	reports(before, "false")
	if status, _, body := do(t, "PUT", srv.URL+"/sandboxes/"+open+"/network", `{"allowPublicTraffic":false}`, "X-API-KEY", "alice"); status != 501 {
		t.Errorf("a port that is to be closed later: status %d, %s", status, body)
	}
	takes := func(id, port, token string, want bool) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = port + "-" + sandbox.HostID(id) + ".localhost:8080"
		if token != "" {
			r.Header.Set(headerTraffic, token)
		}
		if got := s.TakesPort(r); got != want {
			t.Errorf("a request for %s with the token %q is taken: %v, want %v", r.Host, token, got, want)
		}
	}
	takes(open, "8080", "", true)
	takes(closed, "8080", "", false) // it is one for a link
	takes(closed, "8080", "x", true) // which is refused here
	takes(open, "49983", "x", false)
	takes("x", "8080", "x", false)
	e.program = ""
	check(open, "8080", 502, "")
	s.opts.PublicPorts = false
	check(open, "8080", 403, "")
	reports(open, "false")
}

// TestErrorTexts: errors name what the client knows, and come in the right order.
func TestErrorTexts(t *testing.T) {
	e, _, srv := newTest(t)
	dead := e.add("alice", func(sb *sandbox.Sandbox) { sb.State, sb.Cause = sandbox.Stopped, "killed" })
	for _, path := range []string{"/fork", "/snapshots", "/logs"} {
		if status, _, body := do(t, "POST", srv.URL+"/sandboxes/"+dead+path, "", "X-API-KEY", "alice"); status != 404 {
			t.Errorf("%s of a killed sandbox: status %d, %s", path, status, body)
		}
	}
	inner := sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: there is none"), "make another")
	err := sandbox.Wrap(sandbox.Wrap(inner, "change network of box", "sbx_x"), "change network", "sbx_x")
	if got := textOf(&goneError{err}); got != "network: there is none; make another" {
		t.Errorf("a client reads %q", got)
	}
}

// TestDomain: the domain of a sandbox is one whose subdomains are host names.
func TestDomain(t *testing.T) {
	_, s, srv := newTest(t)
	for host, want := range map[string]string{
		"127.0.0.1:3000": "localhost:3000", "[::1]:3000": "localhost:3000", "127.0.0.1": "localhost", "localhost:3000": "localhost:3000",
		"box.example.com:3000": "box.example.com:3000", "box.example.com": "box.example.com",
	} {
		_, _, body := do(t, "POST", srv.URL+"/sandboxes", `{}`, "Host", host, "X-API-KEY", "alice")
		got := decodeJSON[sandboxAnswer](t, body)
		if got.Domain != want {
			t.Errorf("at %s, the domain is %s, want %s", host, got.Domain, want)
		}
		if u, err := url.Parse("http://8000-" + got.SandboxID + "." + got.Domain); err != nil || strings.Contains(u.Hostname(), "_") {
			t.Errorf("at %s, a port has the address %v, %v", host, u, err)
		}
	}
	s.opts.Domain = "e2b.test"
	_, _, body := do(t, "POST", srv.URL+"/sandboxes", `{}`, "X-API-KEY", "alice")
	if got := decodeJSON[sandboxAnswer](t, body).Domain; got != "e2b.test" {
		t.Errorf("the configured domain is %s", got)
	}
}

// TestTemplateExists: a template is a default of E2B's or an image that is here.
func TestTemplateExists(t *testing.T) {
	_, _, srv := newTest(t)
	for name, want := range map[string]int{"base": 200, "code-interpreter-v1": 200, "team%2Fimage%3A1": 200, "other": 404} {
		status, _, body := do(t, "GET", srv.URL+"/templates/aliases/"+name, "", "X-API-KEY", "alice")
		if status != want || want == 200 && !strings.Contains(body, `"public":false`) {
			t.Errorf("%s: status %d, %s; want %d", name, status, body, want)
		}
	}
	if status, _, _ := do(t, "POST", srv.URL+"/templates/aliases/base", "", "X-API-KEY", "alice"); status != 501 {
		t.Errorf("a template that is to be made: status %d", status)
	}
}

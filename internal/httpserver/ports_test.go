package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	portBox   = "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	otherBox  = "sbx_bbbbbbbbbbbbbbbbbbbbbbbbbb"
	portLink  = "zz.signed-for_8000"
	onHost    = "8000-" + portBox + ".preview.example:8080"
	ownOrigin = "http://" + onHost
	// linkedTo and belowToken are paths of a port.
	linkedTo   = "/ports/" + portBox + "/8000." + portLink
	belowToken = "/ports/" + portBox + "/8000"
)

// scriptedPorts are those of a sandbox of the principal good: on port 8000 is
// program, on others there is nothing.
type scriptedPorts struct {
	program string // address
	network sandbox.Network
	until   time.Time // end of the links; zero is in an hour
}

func (p scriptedPorts) DialPort(ctx context.Context, who sandbox.Principal, id string, port int) (net.Conn, error) {
	if _, err := p.Get(ctx, who, id); err != nil {
		return nil, err
	}
	switch port {
	case 8000:
		return new(net.Dialer).DialContext(ctx, "tcp", p.program)
	case 8001:
		return nil, sandbox.Errorf(sandbox.Exhausted, "there are 64 connections")
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "nothing listens"), "start it")
}

func (p scriptedPorts) Get(_ context.Context, who sandbox.Principal, id string) (sandbox.Sandbox, error) {
	if who != "good" || id != portBox {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	return sandbox.Sandbox{ID: id, Network: p.network}, nil
}

func (p scriptedPorts) Owner(_ context.Context, id string) (sandbox.Principal, error) {
	if id != portBox {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	return "good", nil
}

func (p scriptedPorts) VerifyPort(id string, port int, link string) (time.Time, error) {
	if (id != portBox && id != otherBox) || link != fmt.Sprintf("zz.signed-for_%d", port) {
		return time.Time{}, sandbox.Errorf(sandbox.Unauthenticated, "the link is not valid for this port")
	}
	if p.until.IsZero() {
		return time.Now().Add(time.Hour), nil
	}
	return p.until, nil
}

// newPortServer returns a server that shows program, and a way to ask it.
func newPortServer(t *testing.T, program http.Handler, network sandbox.Network) *Server {
	t.Helper()
	prog := httptest.NewServer(program)
	t.Cleanup(prog.Close)
	return newServer(t, func(o *Options) {
		o.Ports, o.PreviewDomain = scriptedPorts{program: prog.Listener.Addr().String(), network: network}, "Preview.example"
	})
}

// tell answers with the request as the program sees it.
func tell(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s\nhost %s\n", r.Method, r.RequestURI, r.Host)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range r.Header {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], " | "))
	}
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "body %q %v", body, err)
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPortRequests: what the program gets of a request.
func TestPortRequests(t *testing.T) {
	s := newPortServer(t, http.HandlerFunc(tell), "none")
	noisy := []string{
		"Cookie", "ours=1; glovebox_link=" + portLink, "Referer", "http://127.0.0.1:8080" + linkedTo + "/", "X-Forwarded-For", "192.0.2.1",
		"Connection", "X-Hop", "X-Hop", "1", "Te", "gzip", "Proxy-Authorization", "Basic x", "X-Own", "2", "User-Agent", "ua",
		"X-Api-Key", "good", "X-Access-Token", "access", "E2b-Traffic-Access-Token", "traffic",
	}
	for name, tt := range map[string]struct {
		target  string
		headers []string
		want    string
	}{
		"by token": {belowToken + "/a%2Fb//c?x=1&y", append([]string{"Authorization", good}, noisy...),
			"POST /a%2Fb//c?x=1&y\nhost localhost:8000\nConnection: close\nContent-Length: 4\nUser-Agent: ua\nX-Forwarded-Host: 127.0.0.1:8080\nX-Forwarded-Proto: http\nX-Own: 2\nbody \"sent\" <nil>"},
		"by a link in the path": {linkedTo + "/", append([]string{"Authorization", good, "Origin", "null"}, noisy...),
			"POST /\nhost localhost:8000\nConnection: close\nContent-Length: 4\nOrigin: http://localhost:8000\nUser-Agent: ua\nX-Forwarded-Host: 127.0.0.1:8080\nX-Forwarded-Proto: http\nX-Own: 2\nbody \"sent\" <nil>"},
		"by a link in the query": {"/p?a=%20b&glovebox_link=" + portLink + "&c", []string{"Host", onHost, "Authorization", "Basic of-the-program", "User-Agent", "ua"},
			"POST /p?a=%20b&c\nhost localhost:8000\nAuthorization: Basic of-the-program\nConnection: close\nContent-Length: 4\nUser-Agent: ua\nX-Forwarded-Host: " + onHost + "\nX-Forwarded-Proto: http\nbody \"sent\" <nil>"},
		"beside a neighbour's cookie": {"/", []string{"Host", onHost, "Cookie", "glovebox_link=of-a-neighbour; glovebox_link=" + portLink + ";b=2", "Sec-Fetch-Site", "same-origin", "User-Agent", "ua"},
			"POST /\nhost localhost:8000\nConnection: close\nContent-Length: 4\nCookie: b=2\nSec-Fetch-Site: same-origin\nUser-Agent: ua\nX-Forwarded-Host: " + onHost + "\nX-Forwarded-Proto: http\nbody \"sent\" <nil>"},
		"by a link in a cookie": {"/", []string{"Host", onHost, "Cookie", "a=1; glovebox_link=" + portLink + ";b=2", "Origin", ownOrigin, "Sec-Fetch-Site", "same-origin", "User-Agent", "ua", "Authorization", good},
			"POST /\nhost localhost:8000\nConnection: close\nContent-Length: 4\nCookie: a=1; b=2\nOrigin: http://localhost:8000\nSec-Fetch-Site: same-origin\nUser-Agent: ua\nX-Forwarded-Host: " + onHost + "\nX-Forwarded-Proto: http\nbody \"sent\" <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := request(s, "POST", tt.target, "sent", tt.headers...)
			if diff := cmp.Diff(tt.want, bodyOf(t, resp)); diff != "" || resp.StatusCode != 200 {
				t.Errorf("status %d (-want +got):\n%s", resp.StatusCode, diff)
			}
		})
	}
}

// TestPortRefused: who has neither token nor link gets nothing, and learns
// nothing.
func TestPortRefused(t *testing.T) {
	asked := 0
	s := newPortServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }), "none")
	cookie := "glovebox_link=" + portLink
	for name, tt := range map[string]struct {
		method, target string
		headers        []string
		want           int
	}{
		"no token":                     {"GET", belowToken + "/", nil, 401},
		"a bad token":                  {"GET", belowToken + "/", []string{"Authorization", "Bearer bad"}, 401},
		"a token without run":          {"GET", belowToken + "/", []string{"Authorization", "Bearer filesonly"}, 403},
		"another's sandbox":            {"GET", belowToken + "/", []string{"Authorization", "Bearer goodbye"}, 404},
		"no sandbox":                   {"GET", strings.Replace(belowToken, portBox, otherBox, 1) + "/", []string{"Authorization", good}, 404},
		"no name of a sandbox":         {"GET", "/ports/x/8000/", []string{"Authorization", good}, 404},
		"no port":                      {"GET", "/ports/" + portBox + "/", []string{"Authorization", good}, 404},
		"port 0":                       {"GET", "/ports/" + portBox + "/0/", []string{"Authorization", good}, 404},
		"port 99999":                   {"GET", "/ports/" + portBox + "/99999/", []string{"Authorization", good}, 502},
		"nothing listens":              {"GET", "/ports/" + portBox + "/9/", []string{"Authorization", good}, 502},
		"too many":                     {"GET", "/ports/" + portBox + "/8001/", []string{"Authorization", good}, 429},
		"a page of elsewhere":          {"GET", belowToken + "/", []string{"Authorization", good, "Origin", "https://evil.example"}, 403},
		"another host":                 {"GET", belowToken + "/", []string{"Authorization", good, "Host", "evil.example"}, 403},
		"a forged link":                {"GET", linkedTo + "x/", nil, 401},
		"a link of another port":       {"GET", "/ports/" + portBox + "/8002." + portLink + "/", nil, 401},
		"a link of a stopped sandbox":  {"GET", strings.Replace(linkedTo, portBox, otherBox, 1) + "/", nil, 404},
		"a link at another host":       {"GET", linkedTo + "/", []string{"Host", "evil.example"}, 403},
		"no link":                      {"GET", "/", []string{"Host", onHost}, 401},
		"a forged cookie":              {"GET", "/", []string{"Host", onHost, "Cookie", cookie + "x"}, 401},
		"two bad cookies":              {"GET", "/", []string{"Host", onHost, "Cookie", cookie + "x; " + cookie + "y"}, 401},
		"a cookie of another port":     {"GET", "/", []string{"Host", strings.Replace(onHost, "8000", "8002", 1), "Cookie", cookie}, 401},
		"a neighbour's page":           {"GET", "/", []string{"Host", onHost, "Cookie", cookie, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 401},
		"a form of a neighbour":        {"POST", "/", []string{"Host", onHost, "Cookie", cookie, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}, 401},
		"a neighbour's WebSocket":      {"GET", "/", []string{"Host", onHost, "Cookie", cookie, "Origin", "http://9-" + portBox + ".preview.example:8080"}, 401},
		"no origin":                    {"POST", "/", []string{"Host", onHost, "Cookie", cookie, "Origin", "null"}, 401},
		"TRACE":                        {"TRACE", belowToken + "/", []string{"Authorization", good}, 501},
		"CONNECT":                      {"CONNECT", belowToken + "/", []string{"Authorization", good}, 501},
		"other paths at a port's host": {"POST", "/mcp", []string{"Host", onHost, "Authorization", "Bearer bad"}, 401},
		"another domain":               {"GET", "/", []string{"Host", "8000-" + portBox + ".evil.example", "Cookie", cookie}, 404},
	} {
		t.Run(name, func(t *testing.T) {
			resp := request(s, tt.method, tt.target, "", tt.headers...)
			if body := bodyOf(t, resp); resp.StatusCode != tt.want || strings.Contains(body, "secret") {
				t.Errorf("status %d, %s; want %d", resp.StatusCode, body, tt.want)
			}
		})
	}
	if asked != 0 {
		t.Errorf("the program was asked %d times", asked)
	}
}

// oneSandbox has the sandbox portBox.
type oneSandbox struct{}

func (oneSandbox) Check(context.Context, sandbox.Principal, string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: portBox, State: sandbox.Running}, nil
}

// TestPortNames: host names and paths have a sandbox's identifier in either form.
// New links have the form without an underscore, which certificates cover.
func TestPortNames(t *testing.T) {
	signer := NewPortSigner(oneSandbox{}, auth.Signer{Key: make([]byte, 32)}, "http://127.0.0.1:8080", "preview.example")
	link, _, err := signer.PortURL(t.Context(), "good", portBox, 8000, time.Hour)
	if err != nil || !strings.HasPrefix(link, "http://8000-"+sandbox.HostID(portBox)+".preview.example:8080/") {
		t.Errorf("the link is %s, %v", link, err)
	}
	s := newPortServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "none")
	for _, id := range []string{portBox, sandbox.HostID(portBox)} {
		cookie := []string{"Host", "8000-" + id + ".preview.example:8080", "Cookie", "glovebox_link=" + portLink}
		if resp := request(s, "GET", "/", "", cookie...); resp.StatusCode != 200 {
			t.Errorf("at the host of %s: status %d", id, resp.StatusCode)
		}
		for _, path := range []string{"/8000." + portLink + "/", "/8000." + portLink + "/a"} {
			if resp := request(s, "GET", "/ports/"+id+path, ""); resp.StatusCode != 200 {
				t.Errorf("below %s: status %d", id, resp.StatusCode)
			}
		}
		if resp := request(s, "GET", "/ports/"+id+"/8000."+portLink, ""); resp.Header.Get("Location") != "/ports/"+id+"/8000."+portLink+"/" {
			t.Errorf("without a slash at its end, %s leads to %q", id, resp.Header.Get("Location"))
		}
	}
}

// TestPortLink: a link in a query goes into a cookie, and out of the address.
func TestPortLink(t *testing.T) {
	s := newPortServer(t, http.HandlerFunc(tell), "none")
	for target, want := range map[string]string{
		"/a?x=1&glovebox_link=" + portLink:                              "/a?x=1",
		"/?glovebox_link=" + portLink:                                   "/",
		"/?glovebox%5Flink=" + portLink + "&%zz":                        "/?%zz",
		"http://" + onHost + "//evil.example?glovebox_link=" + portLink: "/evil.example",
	} {
		resp := request(s, "GET", target, "", "Host", onHost, "Accept", "text/html,*/*")
		cookies := resp.Cookies()
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want || len(cookies) != 1 {
			t.Fatalf("%s: status %d, %v; want a redirect to %s", target, resp.StatusCode, resp.Header, want)
		}
		c := cookies[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Domain != "" || c.Path != "/" || c.Expires.IsZero() {
			t.Errorf("the cookie is %v", c)
		}
		resp = request(s, "GET", want, "", "Host", onHost, "Cookie", c.Name+"="+c.Value, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
		if got := bodyOf(t, resp); resp.StatusCode != 200 || strings.Contains(got, c.Value) {
			t.Errorf("with the cookie: status %d, %s", resp.StatusCode, got)
		}
	}
	framed := request(s, "GET", "/?glovebox_link="+portLink, "", "Host", onHost, "Accept", "text/html", "Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "cross-site")
	if c := framed.Cookies(); len(c) != 1 || !c[0].Secure || c[0].SameSite != http.SameSiteNoneMode || !c[0].Partitioned || !c[0].HttpOnly {
		t.Errorf("in a frame of another site: status %d, cookies %v", framed.StatusCode, c)
	}
	resp := request(s, "GET", linkedTo+"?q", "")
	if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusPermanentRedirect || got != linkedTo+"/?q" {
		t.Errorf("without a slash at its end: status %d, to %s", resp.StatusCode, got)
	}
}

// TestPortAnswers: what a browser gets of an answer.
func TestPortAnswers(t *testing.T) {
	program := func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range []string{
			"Strict-Transport-Security", "Clear-Site-Data", "Alt-Svc", "Nel", "X-Accel-Redirect", "X-Sendfile", "Report-To",
			"Reporting-Endpoints", "Service-Worker-Allowed", "X-Own", "Etag", "Access-Control-Allow-Credentials", "Trailer",
		} {
			h.Set(name, "v")
		}
		h.Add("Set-Cookie", "a=1; Domain=preview.example; Path=/; HttpOnly")
		h.Add("Set-Cookie", "glovebox_link=stolen")
		h.Set("Content-Security-Policy", "img-src 'none'")
		h.Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, "hello")
	}
	const hosts = "pypi.org:443,*.example.com,192.0.2.0/24"
	s := newPortServer(t, http.HandlerFunc(program), hosts)
	own := " pypi.org:443 *.example.com"
	policy := func(host string) string {
		return "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:" + own + "; connect-src 'self' data: blob: ws://" + host + " wss://" + host + own + "; form-action 'self'" + own + "; base-uri 'self'"
	}
	check := func(name string, resp *http.Response, want http.Header) {
		t.Helper()
		if got := bodyOf(t, resp); got != "hello" {
			t.Errorf("%s: %q", name, got)
		}
		resp.Header.Del("Date")
		if diff := cmp.Diff(want, resp.Header); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	check("below a path", request(s, "GET", linkedTo+"/?to=/next", ""), http.Header{
		"Access-Control-Allow-Origin": {"*"}, "Access-Control-Expose-Headers": {"*"},
		"Content-Security-Policy": {"img-src 'none'", "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts; " + policy("127.0.0.1:8080")},
		"Content-Type":            {"text/plain; charset=utf-8"}, "Etag": {"v"}, "Location": {linkedTo + "/next"},
		"Referrer-Policy": {"no-referrer"}, "Vary": {"Origin"}, "X-Own": {"v"}, "X-Robots-Tag": {"noindex"},
	})
	check("at a host", request(s, "GET", "/?to=http://localhost:8000/next?q", "", "Host", onHost, "Cookie", "glovebox_link="+portLink), http.Header{
		"Access-Control-Allow-Credentials": {"v"}, "Content-Security-Policy": {"img-src 'none'", policy(onHost)},
		"Content-Type": {"text/plain; charset=utf-8"}, "Cross-Origin-Resource-Policy": {"same-origin"}, "Etag": {"v"}, "Location": {"/next?q"},
		"Referrer-Policy": {"same-origin"}, "Report-To": {"v"}, "Reporting-Endpoints": {"v"}, "Service-Worker-Allowed": {"v"},
		"Set-Cookie": {"a=1; Path=/; HttpOnly"}, "X-Own": {"v"}, "X-Robots-Tag": {"noindex"},
	})
	resp := request(s, "GET", belowToken+"/", "", "Authorization", good, "Origin", "http://localhost:3000")
	if got := resp.Header.Values("Access-Control-Allow-Origin"); !slices.Equal(got, []string{"http://localhost:3000"}) {
		t.Errorf("a page that the operator allows may read it by %q", got)
	}
	resp = request(s, "OPTIONS", linkedTo+"/api", "", "Origin", "null", "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "x-a")
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Headers") != "x-a" {
		t.Errorf("a question of a page without an origin: status %d, %v", resp.StatusCode, resp.Header)
	}
	s = newPortServer(t, http.HandlerFunc(program), "internet")
	resp = request(s, "GET", "/", "", "Host", onHost, "Cookie", "glovebox_link="+portLink)
	if got := resp.Header.Values("Content-Security-Policy"); len(got) != 1 {
		t.Errorf("a page of a sandbox that reaches everything has the policies %q", got)
	}
}

// startPorts serves for clients with connections.
func startPorts(t *testing.T, program string) string {
	t.Helper()
	s := newServer(t, func(o *Options) { o.Ports, o.PreviewDomain = scriptedPorts{program: program}, "preview.example" })
	front := httptest.NewServer(s.Handler())
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// rawProgram accepts connections, and has each served by serve.
func rawProgram(t *testing.T, serve func(conn net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			}()
		}
	}()
	return l.Addr().String()
}

// readHead reads a request or an answer up to its body.
func readHead(r *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

func dialFront(t *testing.T, addr, send string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, send); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func TestPortWebSocket(t *testing.T) {
	upgraded := make(chan string, 1)
	front := startPorts(t, rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		head := readHead(r)
		upgraded <- head
		if !strings.Contains(head, "Upgrade: websocket") {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			return
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSet-Cookie: a=1\r\n\r\nfirst")
		io.Copy(conn, r)
	}))
	head := "GET " + linkedTo + "/socket HTTP/1.1\r\nHost: " + front + "\r\nConnection: Upgrade\r\nUpgrade: %s\r\nOrigin: null\r\nSec-WebSocket-Key: k\r\n\r\n"
	conn, r := dialFront(t, front, fmt.Sprintf(head, "websocket"))
	answer := readHead(r)
	if !strings.HasPrefix(answer, "HTTP/1.1 101 ") || strings.Contains(answer, "Set-Cookie") || !strings.Contains(answer, "Sec-Websocket-Accept: x") {
		t.Fatalf("the answer is %s", answer)
	}
	if got := <-upgraded; !strings.HasPrefix(got, "GET /socket ") || !strings.Contains(got, "Origin: http://localhost:8000\r\n") {
		t.Errorf("the program got %s", got)
	}
	io.WriteString(conn, "+echo")
	got := make([]byte, 10)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "first+echo" {
		t.Errorf("through the WebSocket: %q, %v", got, err)
	}
	conn.Close()

	_, r = dialFront(t, front, fmt.Sprintf(head, "h2c"))
	if answer := readHead(r); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Errorf("another protocol: %s", answer)
	}
	if got := <-upgraded; strings.Contains(got, "Upgrade") {
		t.Errorf("another protocol was asked of the program: %s", got)
	}
}

// TestPortSmuggling: what one request or answer leaves on a connection is not
// part of the next.
func TestPortSmuggling(t *testing.T) {
	heads := make(chan string, 10)
	front := startPorts(t, rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		heads <- readHead(r)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
	}))
	conn, r := dialFront(t, front, "")
	for range 2 {
		io.WriteString(conn, "GET "+linkedTo+"/ HTTP/1.1\r\nHost: "+front+"\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodyOf(t, resp); got != "ok" {
			t.Errorf("the answer is %q", got)
		}
		<-heads
	}
	for name, request := range map[string]string{
		"two lengths":         "Content-Length: 6\r\nContent-Length: 30\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
		"length and chunks":   "Content-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /forged HTTP/1.1\r\nHost: a\r\n\r\n",
		"an unknown encoding": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /forged HTTP/1.1\r\nHost: a\r\n\r\n",
		"a folded header":     "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\nGET /forged HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		_, r := dialFront(t, front, "POST "+linkedTo+"/ HTTP/1.1\r\nHost: "+front+"\r\n"+request)
		readHead(r)
		select {
		case head := <-heads:
			if strings.Contains(head, "/forged") || strings.Contains(head, "Content-Length") && strings.Contains(head, "Transfer-Encoding") {
				t.Errorf("%s: the program got %s", name, head)
			}
		case <-time.After(200 * time.Millisecond): // it was refused
		}
	}
}

// TestPortHostileProgram: whatever a program answers, the client is told that it
// did not answer, or gets what it said.
func TestPortHostileProgram(t *testing.T) {
	for name, tt := range map[string]struct {
		says string
		want int // 0 is that the connection breaks off
	}{
		"nothing":          {"", 502},
		"nonsense":         {"nonsense\r\n\r\n", 502},
		"no status":        {"HTTP/1.1 000 x\r\n\r\n", 502},
		"long headers":     {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 502},
		"an upgrade":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 502},
		"informational":    {"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=1\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200},
		"a part":           {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 0},
		"a trailer":        {"HTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSet-Cookie: a=1\r\n\r\n", 200},
		"a split header":   {"HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n", 502},
		"HTTP/2":           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 502},
		"another location": {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:22/\r\nContent-Length: 0\r\n\r\n", 302},
	} {
		t.Run(name, func(t *testing.T) {
			front := startPorts(t, rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
				readHead(r)
				io.WriteString(conn, tt.says)
			}))
			client := http.Client{
				Transport:     &http.Transport{DisableKeepAlives: true},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
			resp, err := client.Get("http://" + front + linkedTo + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			if tt.want == 0 && err == nil || tt.want != 0 && (err != nil || resp.StatusCode != tt.want) {
				t.Errorf("status %d, %v; want %d", resp.StatusCode, err, tt.want)
			}
			if resp.Header.Get("Set-Cookie") != "" || resp.Trailer.Get("Set-Cookie") != "" || resp.Header.Get("Link") != "" {
				t.Errorf("headers %v, trailers %v", resp.Header, resp.Trailer)
			}
		})
	}
}

// TestPortEarlyHints: what the server says itself stays, whatever the program says
// before its answer.
func TestPortEarlyHints(t *testing.T) {
	front := startPorts(t, rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+front+"/?glovebox_link="+portLink, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = onHost
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if c := resp.Cookies(); resp.StatusCode != http.StatusOK || len(c) != 1 || c[0].Value != portLink || resp.Header.Get("X-A") != "" {
		t.Errorf("status %d, headers %v; want the cookie", resp.StatusCode, resp.Header)
	}
}

// TestPortShutdown: what is being shown ends when the server does, WebSockets
// too.
func TestPortShutdown(t *testing.T) {
	begun := make(chan struct{}, 2)
	program := rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		if strings.Contains(readHead(r), "Upgrade: websocket") {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		} else {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nbegun")
		}
		begun <- struct{}{}
		io.Copy(io.Discard, r)
	})
	s := newServer(t, func(o *Options) { o.Ports, o.Grace = scriptedPorts{program: program}, 20*time.Second })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	addr := ln.Addr().String()
	get := "GET " + linkedTo + "/ HTTP/1.1\r\nHost: " + addr + "\r\n"
	_, plain := dialFront(t, addr, get+"\r\n")
	_, socket := dialFront(t, addr, get+"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	readHead(plain)
	readHead(socket)
	<-begun
	<-begun
	began := time.Now()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for name, r := range map[string]*bufio.Reader{"an answer": plain, "a WebSocket": socket} {
		if _, err := io.Copy(io.Discard, r); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s is still open: %v", name, err)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the shutdown waited %v for what was being shown", took)
	}
}

// TestPortLinkExpires opens a WebSocket and an answer without an end by a link.
// Both end with the link, also if their client reads nothing.
func TestPortLinkExpires(t *testing.T) {
	ended := make(chan string, 4)
	program := rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		head := readHead(r)
		if strings.Contains(head, "Upgrade: websocket") {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		} else {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		}
		if strings.Contains(head, "/flood") {
			io.Copy(conn, zeros{})
		} else {
			io.Copy(io.Discard, r)
		}
		ended <- head[:strings.Index(head, " HTTP/")]
	})
	until := time.Now().Add(3 * time.Second)
	s := newServer(t, func(o *Options) { o.Ports = scriptedPorts{program: program, until: until} })
	front := httptest.NewServer(s.Handler())
	t.Cleanup(front.Close)
	addr := front.Listener.Addr().String()
	get := func(path string) string { return "GET " + linkedTo + path + " HTTP/1.1\r\nHost: " + addr + "\r\n" }
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	_, plain := dialFront(t, addr, get("/answer")+"\r\n")
	_, socket := dialFront(t, addr, get("/socket")+upgrade)
	dialFront(t, addr, get("/flood-answer")+"\r\n")
	dialFront(t, addr, get("/flood-socket")+upgrade)
	for name, r := range map[string]*bufio.Reader{"an answer": plain, "a WebSocket": socket} {
		readHead(r)
		if _, err := io.Copy(io.Discard, r); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s outlives its link: %v", name, err)
		}
		if early := time.Until(until); early > 0 {
			t.Errorf("%s ended %v before its link", name, early)
		}
	}
	limit := time.After(5 * time.Second)
	for range 4 {
		select {
		case <-ended:
		case <-limit:
			t.Fatal("the program's connections outlive the link")
		}
	}
	for deadline := time.Now().Add(5 * time.Second); s.shares.streams.Held("good") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams outlive the link", s.shares.streams.Held("good"))
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// newFlood returns a server whose ports have a program that floods its WebSocket,
// and the server's address. begun and ended are closed when the flood begins and
// ends.
func newFlood(t *testing.T) (s *Server, addr string, begun, ended chan struct{}) {
	t.Helper()
	begun, ended = make(chan struct{}), make(chan struct{})
	program := rawProgram(t, func(conn net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		close(begun)
		io.Copy(conn, zeros{})
		close(ended)
	})
	s = newServer(t, func(o *Options) { o.Ports = scriptedPorts{program: program} })
	front := httptest.NewServer(s.Handler())
	t.Cleanup(front.Close)
	return s, front.Listener.Addr().String(), begun, ended
}

// TestPortEndsUnread ends the WebSocket of a token whose client does not read.
func TestPortEndsUnread(t *testing.T) {
	s, addr, begun, ended := newFlood(t)
	dialFront(t, addr, "GET "+belowToken+"/ HTTP/1.1\r\nHost: "+addr+"\r\nAuthorization: "+good+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	<-begun
	time.Sleep(300 * time.Millisecond) // until the buffers are full
	s.End(func(auth.Identity) bool { return true })
	<-ended
	for deadline := time.Now().Add(5 * time.Second); s.shares.streams.Held("good") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams outlive their token", s.shares.streams.Held("good"))
		}
	}
}

// TestPortLinkRevoked uses each form of a link after the owner of the sandbox was
// revoked, and after another principal was.
func TestPortLinkRevoked(t *testing.T) {
	asked := 0
	prog := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(prog.Close)
	verifier := &revocable{}
	s := newServer(t, func(o *Options) {
		o.Auth = verifier
		o.Ports, o.PreviewDomain = scriptedPorts{program: prog.Listener.Addr().String()}, "preview.example"
	})
	forms := map[string]func() *http.Response{
		"path":  func() *http.Response { return request(s, "GET", linkedTo+"/", "") },
		"query": func() *http.Response { return request(s, "GET", "/?glovebox_link="+portLink, "", "Host", onHost) },
		"cookie": func() *http.Response {
			return request(s, "GET", "/", "", "Host", onHost, "Cookie", "glovebox_link="+portLink)
		},
	}
	for _, who := range []sandbox.Principal{"another", "good"} {
		verifier.revoke(who)
		asked = 0
		for name, form := range forms {
			resp := form()
			body := bodyOf(t, resp)
			if who != "good" {
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s, another principal revoked: status %d, %s", name, resp.StatusCode, body)
				}
				continue
			}
			if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "revoked") || !strings.Contains(body, `"hint"`) {
				t.Errorf("%s, the owner revoked: status %d, %s", name, resp.StatusCode, body)
			}
		}
		if want := map[bool]int{true: 0, false: len(forms)}[who == "good"]; asked != want {
			t.Errorf("%s is revoked: the program was asked %d times, want %d", who, asked, want)
		}
	}
}

// TestPortLinkEndsUnread ends a WebSocket that was opened by a link and whose
// client does not read, when the owner of the sandbox is revoked.
func TestPortLinkEndsUnread(t *testing.T) {
	s, addr, begun, ended := newFlood(t)
	dialFront(t, addr, "GET "+linkedTo+"/ HTTP/1.1\r\nHost: "+addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	<-begun
	if !s.Busy() {
		t.Error("the server is not busy, so nothing looks for revoked tokens")
	}
	s.End(func(id auth.Identity) bool { return id.Principal == "good" })
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the WebSocket outlives its owner")
	}
}

// TestPortChallenge reads the challenges for requests by token.
func TestPortChallenge(t *testing.T) {
	s := newPortServer(t, http.HandlerFunc(tell), "none")
	for token, want := range map[string]string{"": "", "bad": invalidToken, "filesonly": insufficientScope} {
		var headers []string
		if token != "" {
			headers = []string{"Authorization", "Bearer " + token}
		}
		got := request(s, "GET", belowToken+"/", "", headers...).Header.Get("WWW-Authenticate")
		if _, code, _ := strings.Cut(got, "error="); !strings.HasPrefix(got, "Bearer ") || (want == "") != (code == "") || !strings.Contains(code, want) {
			t.Errorf("the token %q: WWW-Authenticate %s; want the error %q", token, got, want)
		}
	}
}

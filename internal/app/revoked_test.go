package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRevokedPrincipalEndsLinks has another process revoke a principal's only
// token. The links to its ports and files end, with the connections that they
// opened. A new token of the same name makes the principal valid again.
func TestRevokedPrincipalEndsLinks(t *testing.T) {
	w := newFileWorld(t)
	// Boxes of the fake driver share this machine's loopback address.
	program := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(rw, "the page")
			return
		}
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(io.Discard, conn)
	}))
	t.Cleanup(program.Close)
	port := program.Listener.Addr().(*net.TCPAddr).Port
	portLink := func(p sandbox.Principal) string {
		t.Helper()
		sb, err := w.sys.Engine.Create(t.Context(), p, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		link, _, err := w.sys.portsAt(w.url, "none").PortURL(t.Context(), p, sb.ID, port, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	theirs := portLink(w.principal)
	links := map[string]string{
		"port": theirs, "file": w.signed(t, "GET", "hello.txt", time.Hour), "file by the workspace's ID": w.file("hello.txt"),
		"archive": w.signed(t, "GET", ".", time.Hour),
	}
	others := portLink(sandbox.Local)
	upload := w.signed(t, "PUT", "new.txt", time.Hour)
	begun := w.signed(t, "PUT", "begun.txt", time.Hour)
	check := func(when string, want int) {
		t.Helper()
		for name, link := range links {
			if res, text := w.do(t, "GET", link, nil); res.StatusCode != want || want == 401 && !strings.Contains(text, "revoked") {
				t.Errorf("%s: the link to the %s: %d %s, want %d", when, name, res.StatusCode, text, want)
			}
		}
		if res, text := w.do(t, "GET", others, nil); res.StatusCode != 200 {
			t.Errorf("%s: the link of another principal: %d %s", when, res.StatusCode, text)
		}
	}
	check("before", 200)
	addr := strings.TrimPrefix(w.url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	u, err := url.Parse(theirs)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", u.Path, addr)
	socket := bufio.NewReader(conn)
	if line, err := socket.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		t.Fatalf("the WebSocket: %q, %v", line, err)
	}
	// An upload that is under way.
	body, send := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		res, err := http.DefaultClient.Do(must(http.NewRequestWithContext(t.Context(), "PUT", begun, body)))
		if err != nil {
			ended <- 0
			return
		}
		res.Body.Close()
		ended <- res.StatusCode
	}()
	io.WriteString(send, "half")

	other, err := OpenTokens(t.Context(), w.sys.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Revoke(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the answer of before is a second old at most
		if res, _ := w.do(t, "GET", theirs, nil); res.StatusCode == 401 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the link to a port outlives its owner")
		}
	}
	check("revoked", 401)
	if res, _ := w.do(t, "PUT", upload, strings.NewReader("x")); res.StatusCode != 401 {
		t.Errorf("an upload by a link: %d, want 401", res.StatusCode)
	}
	io.WriteString(send, "rest")
	send.Close()
	if status := <-ended; status == 201 {
		t.Error("an upload that was under way was stored")
	}
	conn.SetReadDeadline(time.Now().Add(5 * auth.RevocationEvery))
	if _, err := io.Copy(io.Discard, socket); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the WebSocket outlives its owner: %v", err)
	}

	if _, _, err := other.Create(t.Context(), "alice", nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if res, _ := w.do(t, "GET", theirs, nil); res.StatusCode == 200 || time.Now().After(deadline) {
			break
		}
	}
	check("with a new token of the same name", 200)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

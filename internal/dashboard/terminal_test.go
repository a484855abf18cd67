package dashboard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// masked returns a frame of a browser.
func masked(first byte, data string) []byte {
	return append([]byte{first, 128 | byte(len(data)), 0, 0, 0, 0}, data...)
}

// TestTerminal connects a page to a shell, which ends with the connection.
func TestTerminal(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ShellTime = time.Hour })
	w.engine.run.Status = sandbox.RunRunning
	server := httptest.NewServer(w.server.Authenticate(w.server))
	defer server.Close()
	addr := server.Listener.Addr().String()
	w.signIn("alice")
	dial := func(query, origin, who string) (net.Conn, *bufio.Reader, *http.Response) {
		t.Helper()
		w.signIn(who)
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %ssandboxes/%s/terminal/socket?%s HTTP/1.1\r\nHost: box.test\r\nOrigin: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: %s=%s\r\n\r\n", Path, box, query, origin, cookieName, w.cookies[cookieName])
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, r, res
	}
	for name, c := range map[string]struct {
		query, origin, who string
		want               int
	}{
		"another origin":    {"cols=80&rows=24", "http://8000-sbx.box.test", "alice", 403},
		"another principal": {"cols=80&rows=24", "http://box.test", "bob", 404},
		"no size":           {"cols=0&rows=24", "http://box.test", "alice", 400},
	} {
		if _, _, res := dial(c.query, c.origin, c.who); res.StatusCode != c.want {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if len(w.engine.begun) > 0 {
		t.Fatalf("refused connections began %v", w.engine.begun)
	}
	c, r, res := dial("cols=100&rows=30", "http://box.test", "alice")
	if res.StatusCode != 101 {
		t.Fatalf("%d", res.StatusCode)
	}
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	write := func(b []byte) {
		t.Helper()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(masked(0x82, "ls\x1b"))
	expect("\x82\x07got ls\x1b")
	write(masked(0x81, `{"cols":120,"rows":40}`))
	expect("\x82\x0agot 120x40")
	begun := w.engine.begun[0]
	if begun.SandboxID != box || *begun.PTY != (sandbox.TerminalSize{Cols: 100, Rows: 30}) || !begun.KeepStdin || begun.Timeout != time.Hour || begun.Env["TERM"] != terminalType {
		t.Errorf("the shell is %+v", begun)
	}
	w.engine.run.Status = sandbox.RunFinished
	write(masked(0x82, "exit"))
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(rest, []byte(`{"ended":"The shell has ended.`)) {
		t.Errorf("the end is %q, %v", rest, err)
	}
	// A closed page ends its shell.
	w.engine.mu.Lock()
	w.engine.stopped = nil
	w.engine.mu.Unlock()
	c, _, _ = dial("cols=80&rows=24", "http://box.test", "alice")
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w.engine.mu.Lock()
		stopped := slices.Contains(w.engine.stopped, theRun)
		w.engine.mu.Unlock()
		if stopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the shell goes on without its page")
		}
	}
}

// TestNoTerminal has a build without xterm.js offer a log and a line for input.
func TestNoTerminal(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Terminal = func() bool { return false } })
	w.engine.run.Status = sandbox.RunRunning
	w.signIn("alice")
	page := Path + "sandboxes/" + box + "/terminal"
	if _, body := w.get(page); !strings.Contains(body, "This build has no terminal") || strings.Contains(body, "terminal.js") {
		t.Errorf("the page is\n%s", body)
	}
	res, _ := w.post(page, url.Values{})
	if res.StatusCode != 303 || res.Header.Get("Location") != page+"?run="+theRun {
		t.Fatalf("start: %d to %s", res.StatusCode, res.Header.Get("Location"))
	}
	if _, body := w.get(page + "?run=" + theRun); !strings.Contains(body, `name="line"`) || strings.Contains(body, script) {
		t.Errorf("the log is\n%s", body)
	}
	if res, body := w.post(Path+"runs/"+theRun+"/input", url.Values{"line": {"echo hi"}}); res.StatusCode != 303 {
		t.Errorf("a line: %d %s", res.StatusCode, body)
	}
	if got := <-w.engine.shell; got != "echo hi\n" {
		t.Errorf("the shell got %q", got)
	}
	w.signIn("bob")
	for _, path := range []string{page, page + "/socket?cols=1&rows=1", page + "?run=" + theRun} {
		if res, _ := w.get(path); res.StatusCode != 404 {
			t.Errorf("%s of alice: %d", path, res.StatusCode)
		}
	}
	for _, path := range []string{page, Path + "runs/" + theRun + "/input"} {
		if res, _ := w.post(path, url.Values{"line": {"x"}}); res.StatusCode != 404 {
			t.Errorf("%s of alice: %d", path, res.StatusCode)
		}
	}
}

// TestPinned checks that the lock file of npm has the hash of each package.
func TestPinned(t *testing.T) {
	b, err := os.ReadFile("npm/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name != "" && (p.Version == "" || !strings.HasPrefix(p.Integrity, "sha512-")) {
			t.Errorf("%s is %+v", name, p)
		}
	}
}

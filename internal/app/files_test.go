package app

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A fileWorld is a server with a workspace of a principal's.
type fileWorld struct {
	sys       *System
	url       string
	principal sandbox.Principal
	token     string
	id        workspace.ID
	dir       string // of the workspace, on this machine
	logged    *lockedBuilder
}

func newFileWorld(t *testing.T) *fileWorld {
	t.Helper()
	w := &fileWorld{logged: &lockedBuilder{}}
	w.sys, w.url = serveHTTP(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Config.Workspace.Size = 64 << 20
		tokens, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		if w.token, _, err = tokens.Create(t.Context(), "alice", []string{"files"}); err != nil {
			t.Fatal(err)
		}
	})
	identity, err := w.sys.auth.Verify(t.Context(), w.token)
	if err != nil {
		t.Fatal(err)
	}
	w.principal = identity.Principal
	if err := w.sys.Engine.ImportWorkspace(t.Context(), w.principal, "w", bytes.NewReader(tarOf(t, map[string]string{
		"hello.txt": "hello, world", "page.html": "<script>alert(1)</script>", "a b/ü?.csv": "1,2", "empty": "",
	}))); err != nil {
		t.Fatal(err)
	}
	id, _, err := w.sys.Engine.WorkspaceOf(t.Context(), w.principal, "w")
	if err != nil {
		t.Fatal(err)
	}
	w.id = workspace.ID(id)
	w.dir = w.sys.workspaces.Path(w.id)
	return w
}

func tarOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for name, text := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(tw, text)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// do makes a request and returns the answer with its body read.
func (w *fileWorld) do(t testing.TB, method, url string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func (w *fileWorld) file(name string) string {
	return w.url + "/files/" + string(w.id) + "/" + (&url.URL{Path: name}).EscapedPath()
}

func (w *fileWorld) signed(t testing.TB, method, name string, good time.Duration) string {
	t.Helper()
	u, _, err := w.sys.files(w.url).SignedURL(t.Context(), w.principal, "w", name, method, good)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(u, w.url+"/files/") || strings.Contains(u, string(w.id)) {
		t.Fatalf("URL %s: want one of this server, without the workspace's ID", u)
	}
	return u
}

func TestFilesAreServed(t *testing.T) {
	w := newFileWorld(t)
	res, text := w.do(t, "GET", w.file("hello.txt"), nil)
	tag := res.Header.Get("ETag")
	if res.StatusCode != 200 || text != "hello, world" || tag == "" || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %q %v", res.StatusCode, text, res.Header)
	}
	for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
		if res.Header.Get(name) == "" {
			t.Errorf("there is no %s", name)
		}
	}
	if res, text := w.do(t, "GET", w.file("hello.txt"), nil, "Range", "bytes=7-"); res.StatusCode != 206 || text != "world" {
		t.Errorf("a range: %d %q", res.StatusCode, text)
	}
	if res, _ := w.do(t, "GET", w.file("hello.txt"), nil, "Range", "bytes=100-"); res.StatusCode != 416 {
		t.Errorf("a range beyond the end: %d", res.StatusCode)
	}
	if res, text := w.do(t, "GET", w.file("hello.txt"), nil, "If-None-Match", tag); res.StatusCode != 304 || text != "" {
		t.Errorf("what the client has: %d %q", res.StatusCode, text)
	}
	if res, text := w.do(t, "HEAD", w.file("hello.txt"), nil); res.StatusCode != 200 || text != "" || res.ContentLength != 12 {
		t.Errorf("HEAD: %d %q %d", res.StatusCode, text, res.ContentLength)
	}
	// The same size and time, and yet another file.
	path := filepath.Join(w.dir, "hello.txt")
	fi, _ := os.Stat(path)
	time.Sleep(2 * workspace.Tick)
	os.WriteFile(path, []byte("HELLO, WORLD"), 0o644)
	os.Chtimes(path, fi.ModTime(), fi.ModTime())
	if res, text := w.do(t, "GET", w.file("hello.txt"), nil, "If-None-Match", tag); res.StatusCode != 200 || text != "HELLO, WORLD" {
		t.Errorf("after a change that was hidden: %d %q", res.StatusCode, text)
	}
	for name, want := range map[string]string{"page.html": "attachment", "hello.txt": "inline", "a b/ü?.csv": "inline", "empty": "attachment"} {
		res, _ := w.do(t, "GET", w.file(name), nil)
		if got := res.Header.Get("Content-Disposition"); res.StatusCode != 200 || !strings.HasPrefix(got, want+"; filename") {
			t.Errorf("%s: %d, disposition %q, want %s", name, res.StatusCode, got, want)
		}
		if csp := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox;") || strings.Contains(csp, "allow-scripts") {
			t.Errorf("%s: policy %q", name, csp)
		}
	}
	if res, _ := w.do(t, "GET", w.file("hello.txt")+"?download=1", nil); !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment") {
		t.Error("a download is not told to be saved")
	}
	if log := w.logged.String(); strings.Contains(log, string(w.id)) || strings.Contains(log, "hello.txt") {
		t.Error("the log has the secret part of a URL")
	}
}

func TestFilesRefuse(t *testing.T) {
	w := newFileWorld(t)
	os.WriteFile(filepath.Join(filepath.Dir(w.dir), "outside"), []byte("secret"), 0o644)
	for name, target := range map[string]string{"out": "../outside", "abs": "/etc/hostname", "loop": "loop", "key": "../secret"} {
		if err := os.Symlink(target, filepath.Join(w.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	other := workspace.NewID()
	base := w.url + "/files/"
	for _, u := range []string{
		w.file("out"), w.file("abs"), w.file("loop"), w.file("key"), w.file("absent"), w.file("a b"), w.file("."), w.file(""),
		base, base + string(w.id), base + string(w.id) + "/", base + string(w.id)[:63] + "/hello.txt", base + string(other) + "/hello.txt",
		base + w.id.Handle() + "/hello.txt", // a handle is no secret
		base + strings.ToUpper(string(w.id)) + "/hello.txt",
		base + string(w.id) + "/..%2f..%2foutside", base + string(w.id) + "/%2e%2e/outside", base + string(w.id) + "/%2fetc/hostname",
		base + string(w.id) + "/a%00b", base + string(w.id) + "/%ff", base + string(w.id) + "/" + strings.Repeat("x", 5000),
		base + string(w.id) + "/..%5c..%5coutside",
	} {
		res, text := w.do(t, "GET", u, nil)
		if res.StatusCode < 400 || res.StatusCode >= 500 || !strings.Contains(text, `"message"`) || strings.Contains(text, "secret\"") {
			t.Errorf("GET %.150s: %d %.200s", u, res.StatusCode, text)
		}
	}
	for _, method := range []string{"POST", "DELETE", "PATCH"} {
		if res, _ := w.do(t, method, w.file("hello.txt"), nil); res.StatusCode != 405 {
			t.Errorf("%s: %d", method, res.StatusCode)
		}
	}
	if res, _ := w.do(t, "PUT", w.file("hello.txt"), strings.NewReader("x")); res.StatusCode != 401 {
		t.Errorf("PUT without a signature: %d", res.StatusCode)
	}
	if res, _ := w.do(t, "GET", w.file("hello.txt"), nil, "Origin", "https://evil.example"); res.StatusCode != 403 {
		t.Errorf("a page of another origin: %d", res.StatusCode)
	}
}

func TestSignedURLs(t *testing.T) {
	w := newFileWorld(t)
	get := w.signed(t, "GET", "hello.txt", time.Hour)
	for range 2 {
		if res, text := w.do(t, "GET", get, nil); res.StatusCode != 200 || text != "hello, world" {
			t.Errorf("GET: %d %q", res.StatusCode, text)
		}
	}
	put := w.signed(t, "PUT", "new/file.bin", time.Hour)
	if res, text := w.do(t, "PUT", put, strings.NewReader("uploaded")); res.StatusCode != 201 || !strings.Contains(text, `"size":8`) {
		t.Errorf("PUT: %d %s", res.StatusCode, text)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "new/file.bin")); err != nil || string(got) != "uploaded" {
		t.Errorf("uploaded: %q, %v", got, err)
	}
	expired, _, err := w.sys.files(w.url).SignedURL(t.Context(), w.principal, "w", "hello.txt", "PUT", time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct{ method, url string }{
		"used before":            {"PUT", put},
		"expired":                {"PUT", expired},
		"for reading":            {"PUT", get},
		"for writing":            {"GET", w.signed(t, "PUT", "hello.txt", time.Hour)},
		"for another file":       {"GET", strings.Replace(get, "hello.txt", "page.html", 1)},
		"with another end":       {"GET", strings.Replace(get, "exp=", "exp=9", 1)},
		"without the end":        {"GET", get[:strings.Index(get, "?")] + get[strings.Index(get, "&sig"):]},
		"cut":                    {"GET", get[:len(get)-3]},
		"with two ends":          {"GET", get + "&exp=1"},
		"for another workspace":  {"GET", strings.Replace(get, w.id.Handle(), workspace.ID("x").Handle(), 1)},
		"on the ID":              {"PUT", strings.Replace(put, w.id.Handle(), string(w.id), 1)},
		"a wrong one for the ID": {"GET", w.file("hello.txt") + "?sig=AAAA&exp=99"},
	} {
		res, text := w.do(t, tc.method, tc.url, strings.NewReader("evil"))
		if res.StatusCode != 401 && res.StatusCode != 409 || !strings.Contains(text, `"hint"`) {
			t.Errorf("a URL %s: %d %s", what, res.StatusCode, text)
		}
	}
	for name, want := range map[string]string{"hello.txt": "hello, world", "new/file.bin": "uploaded"} {
		if got, err := os.ReadFile(filepath.Join(w.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "../x", "/x", "a/../b", "x\x00", strings.Repeat("x", 300)} {
		if u, _, err := w.sys.files(w.url).SignedURL(t.Context(), w.principal, "w", name, "PUT", time.Hour); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a URL for %.20q: %s, %v", name, u, err)
		}
	}
	if _, _, err := w.sys.files(w.url).SignedURL(t.Context(), "mallory", "w", "f", "GET", time.Hour); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a URL of another's workspace: %v", err)
	}
}

// TestBrokenUploads has clients that send less or more than they say, or too
// much, or to a bad place. The old file stays.
func TestBrokenUploads(t *testing.T) {
	w := newFileWorld(t)
	// raw sends a request as it is and returns the status of the answer.
	raw := func(format string, args ...any) int {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, format, args...)
		conn.(*net.TCPConn).CloseWrite()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	target := func() string {
		u, err := url.Parse(w.signed(t, "PUT", "hello.txt", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return u.RequestURI()
	}
	for what, tail := range map[string]string{
		"less than announced": "Content-Length: 1000\r\n\r\nhalf",
		"a chunk that is cut": "Transfer-Encoding: chunked\r\n\r\n10\r\nhalf",
		"no last chunk":       "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"a length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"two lengths":         "Content-Length: 4\r\nContent-Length: 8\r\n\r\nhalfhalf",
		"a negative length":   "Content-Length: -1\r\n\r\nhalf",
		"more than may be":    "Content-Length: 5000000000\r\n\r\nhalf",
		"a part":              "Content-Range: bytes 0-3/8\r\nContent-Length: 4\r\n\r\nhalf",
		"an endless number":   "Content-Length: 99999999999999999999999\r\n\r\nhalf",
	} {
		if status := raw("PUT %s HTTP/1.1\r\nHost: localhost\r\n%s", target(), tail); status >= 200 && status < 300 {
			t.Errorf("%s: status %d", what, status)
		}
	}
	res, text := w.do(t, "PUT", w.signed(t, "PUT", "hello.txt", time.Hour), io.MultiReader(io.LimitReader(zeroReader{}, 65<<20)))
	if res.StatusCode != http.StatusInsufficientStorage || !strings.Contains(text, "hint") {
		t.Errorf("more than the quota, unannounced: %d %s", res.StatusCode, text)
	}
	for _, name := range []string{"a b", "hello.txt/below"} {
		if res, _ := w.do(t, "PUT", w.signed(t, "PUT", name, time.Hour), strings.NewReader("x")); res.StatusCode != 400 {
			t.Errorf("over %s: %d", name, res.StatusCode)
		}
	}
	// A client that goes away.
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	go func() {
		pw.Write([]byte("half"))
		cancel()
		pw.CloseWithError(errors.New("gone"))
	}()
	req, _ := http.NewRequestWithContext(ctx, "PUT", w.signed(t, "PUT", "hello.txt", time.Hour), pr)
	if res, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("status %d", res.StatusCode)
		res.Body.Close()
	}
	// One more than announced belongs to the next request, which is none.
	if status := raw("PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nwholeGARBAGE", target()); status != 201 {
		t.Errorf("what it announced: status %d", status)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "hello.txt")); err != nil || string(got) != "whol" {
		t.Errorf("the file: %q, %v", got, err)
	}
	for range 100 { // what the server learns of a client that is gone takes a moment
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "tmp/*/*")); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("parts of broken uploads are left")
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestSignedArchives moves a whole workspace by signed URLs.
func TestSignedArchives(t *testing.T) {
	w := newFileWorld(t)
	get, put := w.signed(t, "GET", ".", time.Hour), w.signed(t, "PUT", ".", time.Hour)
	res, archive := w.do(t, "GET", get, nil)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-tar" || !strings.Contains(archive, "hello, world") {
		t.Fatalf("GET: %d %v", res.StatusCode, res.Header)
	}
	if res, _ := w.do(t, "HEAD", get, nil); res.StatusCode != 200 {
		t.Errorf("HEAD: %d", res.StatusCode)
	}
	more := tarOf(t, map[string]string{"more": "and more", "hello.txt": "hello, again"})
	if res, text := w.do(t, "PUT", w.signed(t, "PUT", ".", time.Hour), bytes.NewReader(more[:1000])); res.StatusCode != 400 {
		t.Errorf("a part of an archive: %d %s", res.StatusCode, text)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "hello.txt")); string(got) != "hello, world" {
		t.Errorf("after a broken upload: %q, %v", got, err)
	}
	if res, text := w.do(t, "PUT", put, bytes.NewReader(more)); res.StatusCode != 201 {
		t.Errorf("PUT: %d %s", res.StatusCode, text)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "hello.txt")); string(got) != "hello, again" {
		t.Errorf("after an upload: %q, %v", got, err)
	}
	for what, tc := range map[string]struct{ method, url string }{
		"used before":    {"PUT", put},
		"for reading":    {"PUT", get},
		"of a file":      {"GET", strings.Replace(w.signed(t, "GET", "hello.txt", time.Hour), "/hello.txt", ".tar", 1)},
		"on a file":      {"GET", strings.Replace(get, ".tar", "/hello.txt", 1)},
		"on a directory": {"GET", strings.Replace(get, ".tar", "/.", 1)},
		"on the ID":      {"GET", strings.Replace(get, w.id.Handle(), string(w.id), 1)},
		"without any":    {"GET", get[:strings.Index(get, "?")]},
	} {
		if res, text := w.do(t, tc.method, tc.url, bytes.NewReader(more)); res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("a signature %s: %d %s", what, res.StatusCode, text)
		}
	}
}

func TestWorkspacesOverHTTP(t *testing.T) {
	w := newFileWorld(t)
	as := []string{"Authorization", "Bearer " + w.token}
	res, text := w.do(t, "GET", w.url+"/workspaces", nil, as...)
	var list struct{ Workspaces []sandbox.Workspace }
	if err := json.Unmarshal([]byte(text), &list); err != nil || res.StatusCode != 200 || len(list.Workspaces) != 1 || list.Workspaces[0].Name != "w" {
		t.Fatalf("%d %s %v", res.StatusCode, text, err)
	}
	if strings.Contains(text, string(w.id)) {
		t.Error("the list has the ID, which is a secret")
	}
	res, archive := w.do(t, "GET", w.url+"/workspaces/w/archive", nil, as...)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("export: %d", res.StatusCode)
	}
	name := url.PathEscape("a copy/ü")
	if res, text := w.do(t, "PUT", w.url+"/workspaces/"+name+"/archive", strings.NewReader(archive), as...); res.StatusCode != 201 || !strings.Contains(text, `"files":5`) {
		t.Errorf("import: %d %s", res.StatusCode, text)
	}
	if res, _ := w.do(t, "PUT", w.url+"/workspaces/w/archive", strings.NewReader("no archive"), as...); res.StatusCode != 400 {
		t.Errorf("import of garbage: %d", res.StatusCode)
	}
	if res, text := w.do(t, "GET", w.url+"/workspaces/"+name, nil, as...); res.StatusCode != 200 || !strings.Contains(text, `"files":5`) {
		t.Errorf("measure: %d %s", res.StatusCode, text)
	}
	if res, _ := w.do(t, "DELETE", w.url+"/workspaces/"+name, nil, as...); res.StatusCode != 204 {
		t.Errorf("delete: %d", res.StatusCode)
	}
	for _, path := range []string{"/workspaces/" + name, "/workspaces/absent", "/workspaces/absent/archive"} {
		if res, _ := w.do(t, "GET", w.url+path, nil, as...); res.StatusCode != 404 {
			t.Errorf("GET %s: %d", path, res.StatusCode)
		}
	}
	if res, _ := w.do(t, "GET", w.url+"/workspaces", nil); res.StatusCode != 401 {
		t.Errorf("without a token: %d", res.StatusCode)
	}
}

package files_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pattern reads as numbered bytes, so that a lost or doubled block shows.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 7)
	}
	return len(p), nil
}

func TestWriteAndRead(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := guesttest.UserDir(t, "")
	path := dir + "/a/b/../b/c.txt"
	info, err := h.Write(ctx, path, strings.NewReader("hello world"), guestapi.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&guestapi.WriteInfo{Name: "c.txt", Type: guestapi.TypeFile, Path: dir + "/a/b/c.txt"}, info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	path = dir + "/a/b/c.txt"
	for _, tc := range []struct {
		offset, length int64
		want           string
	}{
		{0, -1, "hello world"}, {0, 5, "hello"}, {6, -1, "world"}, {6, 2, "wo"}, {6, 100, "world"},
		{0, 0, ""}, {3, 0, ""}, {11, -1, ""}, {11, 5, ""}, {500, -1, ""}, {0, 1<<63 - 1, "hello world"}, {6, 1<<63 - 1, "world"},
	} {
		r, size, err := h.Read(ctx, path, tc.offset, tc.length, noOpts)
		if err != nil {
			t.Errorf("read %d+%d: %v", tc.offset, tc.length, err)
			continue
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(b) != tc.want || size != 11 {
			t.Errorf("read %d+%d: %q, %v, size %d; want %q", tc.offset, tc.length, b, err, size, tc.want)
		}
	}
	if _, err := h.Write(ctx, path, strings.NewReader("!"), guestapi.WriteOptions{Append: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.ReadText(path); got != "hello world!" {
		t.Errorf("after append: %q", got)
	}
	if _, err := h.Write(ctx, dir+"/new", strings.NewReader("1"), guestapi.WriteOptions{Append: true}); err != nil {
		t.Fatal(err)
	}
	h.WriteText(dir+"/empty", "")
	if got := h.ReadText(dir + "/empty"); got != "" {
		t.Errorf("empty file: %q", got)
	}
	// Files of /proc say that they are empty.
	if got := h.ReadText("/proc/version"); !strings.HasPrefix(got, "Linux") {
		t.Errorf("/proc/version: %q", got)
	}
	_, _, err = h.Read(ctx, dir+"/none", 0, -1, noOpts)
	guesttest.WantKind(t, err, sandbox.NotFound, dir+"/none")
	_, _, err = h.Read(ctx, dir, 0, -1, noOpts)
	guesttest.WantKind(t, err, sandbox.Invalid, "is a directory")
	_, err = h.Write(ctx, dir+"/a", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "is a directory")
	_, err = h.Write(ctx, dir+"/a", strings.NewReader(""), guestapi.WriteOptions{Append: true})
	guesttest.WantKind(t, err, sandbox.Invalid, "irectory")
	_, err = h.Write(ctx, path+"/x", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "not a directory")
	_, err = h.Write(ctx, "/tmp/a\x00b", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "NUL")
	_, err = h.Write(ctx, "", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "no path")
	_, err = h.Write(ctx, dir+"/"+strings.Repeat("n", 300), strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "too long")
}

func TestWriteIsWhole(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := guesttest.UserDir(t, "")
	path := dir + "/f"
	h.WriteText(path, "old")
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), iotest.ErrReader(errors.New("boom")))
	_, err := h.Write(ctx, path, broken, guestapi.WriteOptions{})
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("broken source: %v", err)
	}
	only := func() bool {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) == 1
	}
	guesttest.Eventually(t, "the temporary file is gone", only)
	if got := h.ReadText(path); got != "old" {
		t.Errorf("after a broken upload: %q", got)
	}
	h.WriteText(path, "new")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o750 || h.ReadText(path) != "new" {
		t.Errorf("mode %v, %q", info.Mode(), h.ReadText(path))
	}
	// A link is written through, as opening it would.
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	h.WriteText(dir+"/link", "through")
	if got := h.ReadText(path); got != "through" {
		t.Errorf("behind the link: %q", got)
	}
	for _, loop := range []string{"/l1", "/l2"} {
		if err := os.Symlink(map[string]string{"/l1": "l2", "/l2": "l1"}[loop], dir+loop); err != nil {
			t.Fatal(err)
		}
	}
	_, err = h.Write(ctx, dir+"/l1", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "symbolic links")
}

// What is not a file never makes a call wait.
func TestNotRegular(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	fifo := dir + "/fifo"
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, path := range []string{fifo, dir + "/sock", "/dev/zero", "/dev/ptmx"} {
		_, _, err := h.Read(ctx, path, 0, -1, noOpts)
		guesttest.WantKind(t, err, sandbox.Invalid, "not a regular file")
		_, err = h.Write(ctx, path, strings.NewReader("x"), guestapi.WriteOptions{})
		guesttest.WantKind(t, err, sandbox.Invalid, "not a regular file")
		_, err = h.Write(ctx, path, strings.NewReader("x"), guestapi.WriteOptions{Append: true})
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("append to %s: %v", path, err)
		}
		e, err := h.Stat(ctx, path, noOpts)
		if err != nil || e.Type != guestapi.TypeUnspecified {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// A gibibyte goes through without being held.
func TestLargeFile(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	sum := sha256.New()
	before := h.Memory()
	if _, err := h.Write(t.Context(), dir+"/big", io.TeeReader(io.LimitReader(pattern{}, size), sum), guestapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	r, n, err := h.Read(t.Context(), dir+"/big", 0, -1, noOpts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	back := sha256.New()
	if m, err := io.Copy(back, r); err != nil || m != size || n != size {
		t.Fatalf("read %d of %d, %v", m, n, err)
	}
	if !bytes.Equal(sum.Sum(nil), back.Sum(nil)) {
		t.Error("what was read is not what was written")
	}
	if grown := h.Memory() - before; grown > 32<<20*guesttest.RaceFactor {
		t.Errorf("the guest grew by %d MiB", grown>>20)
	}
}

// E2B's SDK uploads forms.
func TestForms(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return guesttest.Dialer(h.Socket)(ctx) },
	}}
	defer client.CloseIdleConnections()
	post := func(query url.Values, parts map[string]string) (int, string) {
		t.Helper()
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for k := range parts {
				if !yield(k) {
					return
				}
			}
		}) {
			w, err := form.CreatePart(textproto.MIMEHeader{
				"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", "file", name)},
				"Content-Type":        {"application/octet-stream"},
			})
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, parts[name])
		}
		form.Close()
		resp, err := client.Post("http://guest/files?"+query.Encode(), form.FormDataContentType(), &body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	status, body := post(url.Values{"path": {dir + "/one"}}, map[string]string{"ignored": "1"})
	if want := fmt.Sprintf(`[{"name":"one","type":"file","path":"%s/one"}]`, dir); status != 200 || body != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	status, body = post(url.Values{"username": {"user"}}, map[string]string{dir + "/a/b": "2", dir + "/c": "3"})
	if status != 200 || h.ReadText(dir+"/a/b") != "2" || h.ReadText(dir+"/c") != "3" || h.ReadText(dir+"/one") != "1" {
		t.Errorf("%d %s", status, body)
	}
	for _, tc := range []struct {
		query url.Values
		parts map[string]string
		want  string
	}{
		{nil, nil, `{"code":400,"message":"no file in the form"}`},
		{url.Values{"path": {dir + "/x"}}, map[string]string{"a": "", "b": ""}, `{"code":400,"message":"too many files in the form"}`},
		{url.Values{"path": {dir + "/x"}, "username": {"who"}}, map[string]string{"a": ""}, `{"code":400,"message":"no such user: who"}`},
		{url.Values{"path": {dir}}, map[string]string{"a": ""}, `{"code":400,"message":"` + dir + `: is a directory"}`},
	} {
		if status, body := post(tc.query, tc.parts); status != 400 || body != tc.want {
			t.Errorf("%d %s, want %s", status, body, tc.want)
		}
	}
	resp, err := client.Get("http://guest/files?path=" + dir + "/nope")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || !strings.Contains(string(b), `"code":404`) {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}

// TestEncodedUpload: what comes packed is stored unpacked, whole or not at all.
func TestEncodedUpload(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return guesttest.Dialer(h.Socket)(ctx) },
	}}
	defer client.CloseIdleConnections()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, strings.Repeat("text ", 1000))
	w.Close()
	h.WriteText(dir+"/f", "old")
	for _, tt := range []struct {
		encoding, body string
		status         int
		want           string
	}{
		{"gzip", packed.String()[:packed.Len()/2], 499, "old"},
		{"gzip", "not packed", 400, "old"},
		{"br", "x", 400, "old"},
		{"gzip", packed.String(), 200, strings.Repeat("text ", 1000)},
		{"identity", "plain", 200, "plain"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest/files?path="+dir+"/f", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Content-Encoding", tt.encoding)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := h.ReadText(dir + "/f"); resp.StatusCode != tt.status || got != tt.want {
			t.Errorf("%s of %d bytes: status %d, want %d; the file has %d bytes, want %d", tt.encoding, len(tt.body), resp.StatusCode, tt.status, len(got), len(tt.want))
		}
	}
}

func TestDiskFull(t *testing.T) {
	guesttest.NeedRoot(t)
	dir := guesttest.UserDir(t, "")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=777"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	h := newHost(t)
	h.WriteText(dir+"/f", "old")
	_, err := h.Write(t.Context(), dir+"/f", io.LimitReader(pattern{}, 4<<20), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Exhausted, "no space left")
	if got := h.ReadText(dir + "/f"); got != "old" {
		t.Errorf("after that it is %q", got)
	}
	req := guesttest.Sh("cat /dev/zero > x 2>/dev/null")
	req.Process.Cwd = dir
	r := guesttest.Collect(t, h.Begin(req, guestapi.StartOptions{}))
	if !r.End.Detail.DiskFull || r.End.Code() == 0 {
		t.Errorf("%+v, %+v", r.End, r.End.Detail)
	}
}

// BenchmarkReadFile is how fast a file's contents reach the host.
func BenchmarkReadFile(b *testing.B) {
	h := newHost(b)
	dir := guesttest.UserDir(b, "")
	const size = 64 << 20
	if _, err := h.Write(b.Context(), dir+"/f", io.LimitReader(pattern{}, size), guestapi.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		r, _, err := h.Read(b.Context(), dir+"/f", 0, -1, noOpts)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != size {
			b.Fatal(n, err)
		}
		r.Close()
	}
}

package guest

import (
	"bytes"
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// userDir makes a directory that the sandbox's user owns, in the file system
// of base or the usual one.
func userDir(t testing.TB, base string) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "files")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, userID, userID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (h *host) write(path, text string) {
	h.t.Helper()
	if _, err := h.Write(h.t.Context(), path, strings.NewReader(text), guestapi.WriteOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(path string) string {
	h.t.Helper()
	r, _, err := h.Read(h.t.Context(), path, 0, -1, guestapi.FileOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

var noOpts guestapi.FileOptions

func TestWriteAndRead(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := userDir(t, "")
	path := dir + "/a/b/../b/c.txt"
	info, err := h.Write(ctx, path, strings.NewReader("hello world"), guestapi.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (guestapi.WriteInfo{Name: "c.txt", Type: guestapi.TypeFile, Path: dir + "/a/b/c.txt"}); *info != want {
		t.Errorf("info is %+v, want %+v", *info, want)
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
	if got := h.read(path); got != "hello world!" {
		t.Errorf("after append: %q", got)
	}
	if _, err := h.Write(ctx, dir+"/new", strings.NewReader("1"), guestapi.WriteOptions{Append: true}); err != nil {
		t.Fatal(err)
	}
	h.write(dir+"/empty", "")
	if got := h.read(dir + "/empty"); got != "" {
		t.Errorf("empty file: %q", got)
	}
	// Files of /proc say that they are empty.
	if got := h.read("/proc/version"); !strings.HasPrefix(got, "Linux") {
		t.Errorf("/proc/version: %q", got)
	}
	_, _, err = h.Read(ctx, dir+"/none", 0, -1, noOpts)
	wantKind(t, err, sandbox.NotFound, dir+"/none")
	_, _, err = h.Read(ctx, dir, 0, -1, noOpts)
	wantKind(t, err, sandbox.Invalid, "is a directory")
	_, err = h.Write(ctx, dir+"/a", strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "is a directory")
	_, err = h.Write(ctx, dir+"/a", strings.NewReader(""), guestapi.WriteOptions{Append: true})
	wantKind(t, err, sandbox.Invalid, "irectory")
	_, err = h.Write(ctx, path+"/x", strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "not a directory")
	_, err = h.Write(ctx, "/tmp/a\x00b", strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "NUL")
	_, err = h.Write(ctx, "", strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "no path")
	_, err = h.Write(ctx, dir+"/"+strings.Repeat("n", 300), strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "too long")
}

func TestWriteIsWhole(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := userDir(t, "")
	path := dir + "/f"
	h.write(path, "old")
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
	eventually(t, "the temporary file is gone", only)
	if got := h.read(path); got != "old" {
		t.Errorf("after a broken upload: %q", got)
	}
	h.write(path, "new")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o750 || h.read(path) != "new" {
		t.Errorf("mode %v, %q", info.Mode(), h.read(path))
	}
	// A link is written through, as opening it would.
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	h.write(dir+"/link", "through")
	if got := h.read(path); got != "through" {
		t.Errorf("behind the link: %q", got)
	}
	for _, loop := range []string{"/l1", "/l2"} {
		if err := os.Symlink(map[string]string{"/l1": "l2", "/l2": "l1"}[loop], dir+loop); err != nil {
			t.Fatal(err)
		}
	}
	_, err = h.Write(ctx, dir+"/l1", strings.NewReader(""), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Invalid, "symbolic links")
}

// What is not a file never makes a call wait.
func TestNotRegular(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
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
		wantKind(t, err, sandbox.Invalid, "not a regular file")
		_, err = h.Write(ctx, path, strings.NewReader("x"), guestapi.WriteOptions{})
		wantKind(t, err, sandbox.Invalid, "not a regular file")
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
	dir := userDir(t, "")
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	sum := sha256.New()
	before := h.rss()
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
	if grown := h.rss() - before; grown > 32<<20 {
		t.Errorf("the guest grew by %d MiB", grown>>20)
	}
}

// pattern reads as numbered bytes, so that a lost or doubled block shows.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 7)
	}
	return len(p), nil
}

func TestStatAndList(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := userDir(t, "")
	for _, name := range []string{"b", "a/2", "a/1/x", "a-b", "nl\nx", "bad\xff"} {
		h.write(dir+"/"+name, name)
	}
	if err := os.Symlink("/no/where", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/b", 0o4751); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(dir+"/b", 0o4751); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2020, 2, 3, 4, 5, 6, 7000, time.UTC)
	if err := os.Chtimes(dir+"/b", at, at); err != nil {
		t.Fatal(err)
	}
	e, err := h.Stat(ctx, dir+"/b", noOpts)
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "b" || e.Path != dir+"/b" || e.Size != 1 || e.Mode != 0o4751 || e.Permissions != "-rwsr-x--x" ||
		!e.ModifiedTime.Equal(at) || e.Type != guestapi.TypeFile || e.RawPath != nil {
		t.Errorf("entry is %+v", e)
	}
	for path, want := range map[string]struct {
		typ    guestapi.FileType
		perm   string
		target string
	}{
		dir + "/a":    {guestapi.TypeDirectory, "drwxr-xr-x", ""},
		dir + "/link": {guestapi.TypeSymlink, "lrwxrwxrwx", "/no/where"},
		"/tmp":        {guestapi.TypeDirectory, "drwxrwxrwt", ""},
		"/dev/null":   {guestapi.TypeUnspecified, "crw-rw-rw-", ""},
		"/":           {guestapi.TypeDirectory, "", ""},
	} {
		e, err := h.Stat(ctx, path, noOpts)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != want.typ || want.perm != "" && e.Permissions != want.perm || e.SymlinkTarget != want.target || e.Name != filepath.Base(path) {
			t.Errorf("entry of %s is %+v", path, e)
		}
	}
	e, err = h.Stat(ctx, dir+"/bad\xff", noOpts)
	if err != nil || e.Name != "bad\uFFFD" || string(e.RawPath) != dir+"/bad\xff" {
		t.Errorf("entry is %+v, %v", e, err)
	}
	if got := h.read(dir + "/bad\xff"); got != "bad\xff" {
		t.Errorf("contents are %q", got)
	}

	list := func(depth int) []string {
		t.Helper()
		l, err := h.ListDir(ctx, dir, depth, noOpts)
		if err != nil || l.Truncated {
			t.Fatal(l, err)
		}
		var names []string
		for _, e := range l.Entries {
			names = append(names, strings.TrimPrefix(e.Path, dir+"/"))
		}
		return names
	}
	flat := []string{"a", "a-b", "b", "bad\uFFFD", "link", "nl\nx"}
	for depth, want := range map[int][]string{
		0: flat, 1: flat,
		2: slices.Insert(slices.Clone(flat), 1, "a/1", "a/2"),
		9: slices.Insert(slices.Clone(flat), 1, "a/1", "a/1/x", "a/2"),
	} {
		if got := list(depth); !slices.Equal(got, want) {
			t.Errorf("depth %d: %q, want %q", depth, got, want)
		}
	}
	_, err = h.ListDir(ctx, dir+"/none", 1, noOpts)
	wantKind(t, err, sandbox.NotFound, "none")
	_, err = h.ListDir(ctx, dir+"/b", 1, noOpts)
	wantKind(t, err, sandbox.Invalid, "not a directory")
	_, err = h.Stat(ctx, dir+"/none", noOpts)
	wantKind(t, err, sandbox.NotFound, "none")
}

func TestListIsBounded(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	for i := range guestapi.MaxListEntries + 7 {
		if err := os.WriteFile(fmt.Sprintf("%s/%07d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := h.ListDir(t.Context(), dir, 1, noOpts)
	if err != nil {
		t.Fatal(err)
	}
	n := len(l.Entries)
	if n != guestapi.MaxListEntries || !l.Truncated || l.Entries[n-1].Name != fmt.Sprintf("%07d", n-1) {
		t.Errorf("%d entries, truncated %v, the last is %s", n, l.Truncated, l.Entries[n-1].Name)
	}
	if err := os.Remove(fmt.Sprintf("%s/%07d", dir, 0)); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		os.Remove(fmt.Sprintf("%s/%07d", dir, i))
	}
	if l, err = h.ListDir(t.Context(), dir, 1, noOpts); err != nil || l.Truncated || len(l.Entries) != guestapi.MaxListEntries {
		t.Errorf("%d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
	// Deep directories of long names are cut off at a size, and still listed.
	deep := userDir(t, "")
	name := strings.Repeat("d", 200)
	inner := deep
	for range 15 {
		inner += "/" + name
	}
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", inner, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l, err = h.ListDir(t.Context(), deep, 100, noOpts); err != nil || !l.Truncated || len(l.Entries) < 100 {
		t.Errorf("%d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
}

func TestMakeMoveRemove(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := userDir(t, "")
	if err := h.MakeDir(ctx, dir+"/x/y", noOpts); err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.MakeDir(ctx, dir+"/x/y", noOpts), sandbox.Conflict, "exists")
	h.write(dir+"/x/y/f", "f")
	wantKind(t, h.MakeDir(ctx, dir+"/x/y/f", noOpts), sandbox.Invalid, "not a directory")
	wantKind(t, h.MakeDir(ctx, dir+"/x/y/f/g", noOpts), sandbox.Invalid, "not a directory")
	if err := h.Move(ctx, dir+"/x", dir+"/p/q\xfe", noOpts); err != nil {
		t.Fatal(err)
	}
	if got := h.read(dir + "/p/q\xfe/y/f"); got != "f" {
		t.Errorf("moved file is %q", got)
	}
	wantKind(t, h.Move(ctx, dir+"/x", dir+"/z", noOpts), sandbox.NotFound, "/x")
	wantKind(t, h.Move(ctx, dir+"/p", dir+"/p/q\xfe/y/p", noOpts), sandbox.Invalid, "")
	h.write(dir+"/one", "1")
	h.write(dir+"/two", "2")
	if err := h.Move(ctx, dir+"/one", dir+"/two", noOpts); err != nil || h.read(dir+"/two") != "1" {
		t.Errorf("move over a file: %v, %q", err, h.read(dir+"/two"))
	}
	// A link is removed, not what it leads to.
	if err := os.Symlink(dir+"/p", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/link", "/two"} {
		if err := h.Remove(ctx, dir+name, noOpts); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.read(dir + "/p/q\xfe/y/f"); got != "f" {
		t.Errorf("behind the link: %q", got)
	}
	if err := h.Remove(ctx, dir+"/p", noOpts); err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.Remove(ctx, dir+"/p", noOpts), sandbox.NotFound, "/p")
	wantKind(t, h.Remove(ctx, "/x/..", noOpts), sandbox.Invalid, "root directory")
}

// A move to another file system copies, whole.
func TestMoveAcross(t *testing.T) {
	h := newHost(t)
	from := userDir(t, "")
	to := userDir(t, "/dev/shm")
	var a, b unix.Stat_t
	if unix.Stat(from, &a) != nil || unix.Stat(to, &b) != nil || a.Dev == b.Dev {
		t.Skip("needs two file systems")
	}
	h.write(from+"/d/f", "contents")
	h.write(from+"/d/sub/g", "more")
	if err := os.Symlink("f", from+"/d/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(from+"/d/f", 0o640); err != nil {
		t.Fatal(err)
	}
	if err := h.Move(t.Context(), from+"/d", to+"/e", noOpts); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to + "/e/f")
	if err != nil || info.Mode().Perm() != 0o640 || h.read(to+"/e/link") != "contents" || h.read(to+"/e/sub/g") != "more" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Lstat(from + "/d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the source is left: %v", err)
	}
	if err := unix.Mkfifo(to+"/e/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.Move(t.Context(), to+"/e", from+"/e", noOpts), sandbox.Invalid, "cannot be moved")
	if entries, err := os.ReadDir(from); err != nil || len(entries) != 0 {
		t.Errorf("half a copy is left: %v, %v", entries, err)
	}
}

// The guest is root, but touches files as who is named.
func TestFilesWithTheUsersRights(t *testing.T) {
	needRoot(t)
	h := newHost(t)
	ctx := t.Context()
	asRoot := guestapi.FileOptions{User: sandbox.Root}
	dir, err := os.MkdirTemp("", "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/s", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "permi") {
			t.Errorf("%s: %v", what, err)
		}
	}
	try := func(want func(string, error)) {
		_, err := h.Stat(ctx, dir+"/s", noOpts)
		want("stat", err)
		r, _, err := h.Read(ctx, dir+"/s", 0, -1, noOpts)
		if err == nil {
			r.Close()
		}
		want("read", err)
		_, err = h.Write(ctx, dir+"/s", strings.NewReader("x"), guestapi.WriteOptions{})
		want("write", err)
		_, err = h.Write(ctx, dir+"/s", strings.NewReader("x"), guestapi.WriteOptions{Append: true})
		want("append", err)
		_, err = h.Write(ctx, dir+"/n", strings.NewReader("x"), guestapi.WriteOptions{})
		want("write new", err)
		want("make", h.MakeDir(ctx, dir+"/d", noOpts))
		want("move", h.Move(ctx, dir+"/s", dir+"/t", noOpts))
		want("remove", h.Remove(ctx, dir+"/s", noOpts))
		_, err = h.Watch(ctx, dir, false, noOpts)
		want("watch", err)
		_, err = h.ListDir(ctx, dir, 1, noOpts)
		want("list", err)
	}
	try(refused) // the directory is root's own
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err = h.Read(ctx, dir+"/s", 0, -1, noOpts)
	refused("read", err)
	_, err = h.Start(ctx, &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "true", Cwd: "/root"}}, guestapi.StartOptions{})
	if _, statErr := os.Stat("/root"); statErr == nil {
		refused("start in /root", err)
	}
	// Root may, and a write by root leaves the owner.
	if err := os.Chown(dir+"/s", userID, userID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Write(ctx, dir+"/s", strings.NewReader("y"), guestapi.WriteOptions{User: sandbox.Root}); err != nil {
		t.Fatal(err)
	}
	e, err := h.Stat(ctx, dir+"/s", asRoot)
	if err != nil || e.Mode != 0o600 || e.Size != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	info, err := os.Stat(dir + "/s")
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != userID {
		t.Errorf("%+v, %v", info, err)
	}
	// What the user writes is the user's, parents too.
	mine := userDir(t, "")
	h.write(mine+"/a/b", "")
	for _, path := range []string{mine + "/a", mine + "/a/b"} {
		info, err := os.Stat(path)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != userID || info.Sys().(*syscall.Stat_t).Gid != userID {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
	// A file that the user may not write is not replaced, though its directory
	// would allow it.
	if err := os.WriteFile(mine+"/ro", []byte("ro"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = h.Write(ctx, mine+"/ro", strings.NewReader("x"), guestapi.WriteOptions{})
	refused("write", err)
	// The threads are root's again, every one.
	for range 50 {
		if _, err := h.Stat(ctx, dir+"/s", asRoot); err != nil {
			t.Fatal(err)
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.pid))
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(b), "Uid:\t0\t0\t0\t0\n") {
			t.Errorf("%s: %s", path, b)
		}
	}
}

func TestRelativePathsAndHome(t *testing.T) {
	a := &account{home: "/home/user"}
	for in, want := range map[string]string{
		"x": "/home/user/x", "../x": "/home/x", "~": "/home/user", "~/x": "/home/user/x", "~x": "/home/user/~x",
		"/a/../../b": "/b", "/": "/", ".": "/home/user", "/a//b/": "/a/b",
	} {
		if got := resolve(in, a); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// E2B's SDK uploads forms.
func TestForms(t *testing.T) {
	h := newHost(t)
	dir := userDir(t, "")
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer(h.socket)(ctx) },
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
	if want := fmt.Sprintf(`[{"name":"one","type":"FILE_TYPE_FILE","path":"%s/one"}]`, dir); status != 200 || body != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	status, body = post(url.Values{"username": {"user"}}, map[string]string{dir + "/a/b": "2", dir + "/c": "3"})
	if status != 200 || h.read(dir+"/a/b") != "2" || h.read(dir+"/c") != "3" || h.read(dir+"/one") != "1" {
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

func TestDiskFull(t *testing.T) {
	needRoot(t)
	dir := userDir(t, "")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=777"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	h := newHost(t)
	h.write(dir+"/f", "old")
	_, err := h.Write(t.Context(), dir+"/f", io.LimitReader(pattern{}, 4<<20), guestapi.WriteOptions{})
	wantKind(t, err, sandbox.Exhausted, "no space left")
	if got := h.read(dir + "/f"); got != "old" {
		t.Errorf("after that it is %q", got)
	}
	req := sh("cat /dev/zero > x 2>/dev/null")
	req.Process.Cwd = dir
	r := collect(t, h.start(req, guestapi.StartOptions{}))
	if !r.end.Detail.DiskFull || r.end.ExitCode == 0 {
		t.Errorf("%+v, %+v", r.end, r.end.Detail)
	}
}

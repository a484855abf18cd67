package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var noOpts guestapi.FileOptions

func TestStatAndList(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	dir := guesttest.UserDir(t, "")
	for _, name := range []string{"b", "a/2", "a/1/x", "a-b", "nl\nx", "bad\xff"} {
		h.WriteText(dir+"/"+name, name)
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
	if got := h.ReadText(dir + "/bad\xff"); got != "bad\xff" {
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
	guesttest.WantKind(t, err, sandbox.NotFound, "none")
	_, err = h.ListDir(ctx, dir+"/b", 1, noOpts)
	guesttest.WantKind(t, err, sandbox.Invalid, "not a directory")
	_, err = h.Stat(ctx, dir+"/none", noOpts)
	guesttest.WantKind(t, err, sandbox.NotFound, "none")
}

func TestListIsBounded(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
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
	deep := guesttest.UserDir(t, "")
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
	dir := guesttest.UserDir(t, "")
	if err := h.MakeDir(ctx, dir+"/x/y", noOpts); err != nil {
		t.Fatal(err)
	}
	guesttest.WantKind(t, h.MakeDir(ctx, dir+"/x/y", noOpts), sandbox.Conflict, "exists")
	h.WriteText(dir+"/x/y/f", "f")
	guesttest.WantKind(t, h.MakeDir(ctx, dir+"/x/y/f", noOpts), sandbox.Invalid, "not a directory")
	guesttest.WantKind(t, h.MakeDir(ctx, dir+"/x/y/f/g", noOpts), sandbox.Invalid, "not a directory")
	if err := h.Move(ctx, dir+"/x", dir+"/p/q\xfe", noOpts); err != nil {
		t.Fatal(err)
	}
	if got := h.ReadText(dir + "/p/q\xfe/y/f"); got != "f" {
		t.Errorf("moved file is %q", got)
	}
	guesttest.WantKind(t, h.Move(ctx, dir+"/x", dir+"/z", noOpts), sandbox.NotFound, "/x")
	guesttest.WantKind(t, h.Move(ctx, dir+"/p", dir+"/p/q\xfe/y/p", noOpts), sandbox.Invalid, "")
	h.WriteText(dir+"/one", "1")
	h.WriteText(dir+"/two", "2")
	if err := h.Move(ctx, dir+"/one", dir+"/two", noOpts); err != nil || h.ReadText(dir+"/two") != "1" {
		t.Errorf("move over a file: %v, %q", err, h.ReadText(dir+"/two"))
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
	if got := h.ReadText(dir + "/p/q\xfe/y/f"); got != "f" {
		t.Errorf("behind the link: %q", got)
	}
	if err := h.Remove(ctx, dir+"/p", noOpts); err != nil {
		t.Fatal(err)
	}
	guesttest.WantKind(t, h.Remove(ctx, dir+"/p", noOpts), sandbox.NotFound, "/p")
	guesttest.WantKind(t, h.Remove(ctx, "/x/..", noOpts), sandbox.Invalid, "root directory")
}

// A move to another file system copies, whole.
func TestMoveAcross(t *testing.T) {
	h := newHost(t)
	from := guesttest.UserDir(t, "")
	to := guesttest.UserDir(t, "/dev/shm")
	var a, b unix.Stat_t
	if unix.Stat(from, &a) != nil || unix.Stat(to, &b) != nil || a.Dev == b.Dev {
		t.Skip("needs two file systems")
	}
	h.WriteText(from+"/d/f", "contents")
	h.WriteText(from+"/d/sub/g", "more")
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
	if err != nil || info.Mode().Perm() != 0o640 || h.ReadText(to+"/e/link") != "contents" || h.ReadText(to+"/e/sub/g") != "more" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Lstat(from + "/d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the source is left: %v", err)
	}
	if err := unix.Mkfifo(to+"/e/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	guesttest.WantKind(t, h.Move(t.Context(), to+"/e", from+"/e", noOpts), sandbox.Invalid, "cannot be moved")
	if entries, err := os.ReadDir(from); err != nil || len(entries) != 0 {
		t.Errorf("half a copy is left: %v, %v", entries, err)
	}
}

// The guest is root, but touches files as who is named.
func TestFilesWithTheUsersRights(t *testing.T) {
	guesttest.NeedRoot(t)
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
	if err := os.Chown(dir+"/s", account.UserID, account.UserID); err != nil {
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
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != account.UserID {
		t.Errorf("%+v, %v", info, err)
	}
	// What the user writes is the user's, parents too.
	mine := guesttest.UserDir(t, "")
	h.WriteText(mine+"/a/b", "")
	for _, path := range []string{mine + "/a", mine + "/a/b"} {
		info, err := os.Stat(path)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != account.UserID || info.Sys().(*syscall.Stat_t).Gid != account.UserID {
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
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", h.PID))
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

package safepath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// open makes a directory to be attacked, a staging directory, and a secret
// beside them, whose path it returns.
func open(t testing.TB) (d, staging *Dir, dir, secret string) {
	t.Helper()
	top := t.TempDir()
	secret = filepath.Join(top, "secret")
	for _, name := range []string{"d", "staging"} {
		if err := os.Mkdir(filepath.Join(top, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(top, "d")
	return openDir(t, dir), openDir(t, filepath.Join(top, "staging")), dir, secret
}

func openDir(t testing.TB, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func write(t testing.TB, d, staging *Dir, name, text string) {
	t.Helper()
	if err := put(d, staging, name, text); err != nil {
		t.Fatal(err)
	}
}

func put(d, staging *Dir, name, text string) error {
	p, err := d.Create(name, staging)
	if err != nil {
		return err
	}
	if _, err := p.WriteString(text); err != nil {
		return errors.Join(err, p.Discard())
	}
	return p.Commit()
}

func read(d *Dir, name string) (string, error) {
	f, _, err := d.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// intact checks that the secret is as it was and that staging is empty.
func intact(t testing.TB, staging *Dir, secret string) {
	t.Helper()
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the file outside reads %q, %v", b, err)
	}
	if fi, err := os.Stat(secret); err != nil || fi.Mode().Perm() != 0o644 && runtime.GOOS != "windows" {
		t.Errorf("the file outside has mode %v", fi.Mode())
	}
	if err := staging.Walk(t.Context(), 10, func(e *Entry) error { return errors.New(e.Path) }); err != nil {
		t.Errorf("left in staging: %v", err)
	}
}

func TestClean(t *testing.T) {
	good := map[string]string{
		"a": "a", "a/b": "a/b", "./a//b/": "a/b", ".": ".", "..a": "..a", "a..": "a..", "...": "...",
		"é": "é", "e\u0301": "e\u0301", "A": "A", "a\\b": "a\\b", "a\nb": "a\nb",
		strings.Repeat("x", MaxPart): strings.Repeat("x", MaxPart),
	}
	for name, want := range good {
		if got, err := Clean(name); err != nil || got != want {
			t.Errorf("Clean(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
	bad := []string{
		"", "..", "../a", "a/..", "a/../b", "/", "/a", "//a", "a\x00b", "\xff", "a/\xc3\x28",
		strings.Repeat("x", 5000), strings.Repeat("x", MaxPart+1), strings.Repeat("a/", MaxDepth) + "a",
	}
	for _, name := range bad {
		if got, err := Clean(name); !errors.Is(err, ErrName) {
			t.Errorf("Clean(%q) = %q, %v; want ErrName", Show(name), got, err)
		} else if len(err.Error()) > 400 {
			t.Errorf("the message is %d bytes long", len(err.Error()))
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/../../b", "/etc/passwd", "a\x00", "./.", "a//b", "\xff/..", "..\\a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := Clean(name)
		if err != nil {
			if !errors.Is(err, ErrName) {
				t.Fatalf("%q: %v", name, err)
			}
			return
		}
		if path.IsAbs(got) || !fs.ValidPath(got) || strings.ContainsRune(got, 0) || !utf8.ValidString(got) || len(got) > MaxName {
			t.Fatalf("Clean(%q) = %q", name, got)
		}
		if again, err := Clean(got); err != nil || again != got {
			t.Fatalf("Clean(%q) = %q, %v", got, again, err)
		}
	})
}

func TestWriteAndRead(t *testing.T) {
	d, staging, dir, secret := open(t)
	write(t, d, staging, "a/b/c.txt", "one")
	write(t, d, staging, "a/b/c.txt", "two")
	write(t, d, staging, "empty", "")
	// Names that differ in case or in the form of a letter are two files, or
	// one where the file system says so; never is one lost without a word.
	for _, pair := range [][2]string{{"Case", "case"}, {"\u00e9", "e\u0301"}} {
		write(t, d, staging, pair[0], "first")
		write(t, d, staging, pair[1], "second")
		if got, err := read(d, pair[0]); err != nil || got != "first" && got != "second" {
			t.Errorf("%q reads %q, %v", pair[0], got, err)
		}
		if got, err := read(d, pair[1]); err != nil || got != "second" {
			t.Errorf("%q reads %q, %v", pair[1], got, err)
		}
	}
	if got, err := read(d, "a/b/c.txt"); err != nil || got != "two" {
		t.Errorf("read: %q, %v", got, err)
	}
	// What is being written is not there yet, and what is given up never was.
	p, err := d.Create("a/b/c.txt", staging)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	if got, err := read(d, "a/b/c.txt"); err != nil || got != "two" {
		t.Errorf("while it is written anew: %q, %v", got, err)
	}
	if err := p.Discard(); err != nil {
		t.Error(err)
	}
	if err := p.Discard(); err != nil {
		t.Errorf("again: %v", err)
	}
	if got, err := read(d, "a/b/c.txt"); err != nil || got != "two" {
		t.Errorf("after a write was given up: %q, %v", got, err)
	}
	for _, name := range []string{"a", "a/b", "."} {
		if err := put(d, staging, name, "x"); !errors.Is(err, ErrType) && !errors.Is(err, ErrName) {
			t.Errorf("write over directory %s: %v", name, err)
		}
		if _, err := read(d, name); !errors.Is(err, ErrType) {
			t.Errorf("read directory %s: %v", name, err)
		}
	}
	if err := put(d, staging, "empty/below", "x"); err == nil {
		t.Error("a file was made below a file")
	}
	if err := d.RemoveAll("a"); err != nil {
		t.Error(err)
	}
	if err := d.RemoveAll("a"); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
	intact(t, staging, secret)
}

// needLinks skips a test where symbolic links cannot be made.
func needLinks(t *testing.T) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "link")
	err := os.Symlink("target", name)
	if err == nil {
		_, err = os.Readlink(name)
	}
	if err != nil && runtime.GOOS == "windows" { // which allows it not everybody
		t.Skipf("no links here: %v", err)
	}
}

func TestLinks(t *testing.T) {
	needLinks(t)
	d, staging, dir, secret := open(t)
	write(t, d, staging, "real/file", "inside")
	for name, target := range map[string]string{
		"abs": secret, "up": "../secret", "dir": "..", "absdir": filepath.Dir(secret), "loop": "loop",
		"loop1": "loop2", "loop2": "loop1", "dangling": "nothing", "good": "real/file", "gooddir": "real",
		"proc": "/proc/self/cwd", "deep": "real/../../secret",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"abs", "up", "dir/secret", "absdir/secret", "loop", "loop1", "loop1/x", "dangling", "proc", "deep", "dir", "absdir"} {
		if got, err := read(d, name); err == nil {
			t.Errorf("read %s: %q; want an error", name, got)
		}
	}
	for _, name := range []string{"good", "gooddir/file"} {
		if got, err := read(d, name); err != nil || got != "inside" {
			t.Errorf("read %s: %q, %v; a link that stays inside is followed", name, got, err)
		}
	}
	for _, name := range []string{"dir/new", "absdir/new", "loop/new", "dangling/new", "dir/secret"} {
		if err := put(d, staging, name, "x"); err == nil {
			t.Errorf("a file was written at %s", name)
		}
	}
	// A write to a link replaces the link.
	for _, name := range []string{"abs", "up", "loop", "dangling", "good"} {
		if err := put(d, staging, name, "mine"); err != nil {
			t.Errorf("write over link %s: %v", name, err)
		}
		if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s is %v, %v", name, fi, err)
		}
	}
	if got, err := read(d, "real/file"); err != nil || got != "inside" {
		t.Errorf("the target of a link that was written over: %q, %v", got, err)
	}
	for _, name := range []string{"dir/secret", "absdir/secret"} {
		if err := d.RemoveAll(name); err == nil {
			t.Errorf("%s was removed, or so it is said", name)
		}
	}
	// Removing a link removes the link.
	for _, name := range []string{"dir", "absdir", "gooddir"} {
		if err := d.RemoveAll(name); err != nil {
			t.Errorf("remove link %s: %v", name, err)
		}
	}
	if _, err := d.Sub("dir"); err == nil {
		t.Error("a directory was opened through a link that is gone")
	}
	if got, err := read(d, "real/file"); err != nil || got != "inside" {
		t.Errorf("after links to its directory were removed: %q, %v", got, err)
	}
	intact(t, staging, secret)
}

func TestWalk(t *testing.T) {
	needLinks(t)
	d, staging, dir, _ := open(t)
	write(t, d, staging, "a/b/c", "12345")
	if err := os.Symlink("..", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a/b/c"), filepath.Join(dir, "a/hard")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Skipf("no such large files here: %v", err)
	}
	sparse.Close()
	var got []string
	var allocated int64
	err = d.Walk(t.Context(), 100, func(e *Entry) error {
		got = append(got, e.Path)
		allocated += e.Allocated
		return nil
	})
	if err != nil || len(got) != 6 {
		t.Errorf("Walk: %q, %v", got, err)
	}
	if allocated > 64<<10 && runtime.GOOS != "windows" { // where nothing tells
		t.Errorf("a hole and a second name count: %d bytes", allocated)
	}
	if err := d.Walk(t.Context(), 3, func(*Entry) error { return nil }); !errors.Is(err, ErrLimit) {
		t.Errorf("more than the limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Walk(ctx, 100, func(*Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// TestDeep nests directories deeper than any path can be long.
func TestDeep(t *testing.T) {
	d, staging, _, secret := open(t)
	depth := 3000
	if runtime.GOOS == "windows" {
		depth = 500 // Wine's paths are those of Linux
	}
	at, err := d.Sub(".")
	if err != nil {
		t.Fatal(err)
	}
	for i := range depth {
		if err := at.root.Mkdir("dir", 0o755); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := at.root.WriteFile("file", nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		next, err := at.sub("dir")
		at.Close()
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	at.Close()
	if err := d.Walk(t.Context(), 1_000_000, func(*Entry) error { return nil }); !errors.Is(err, ErrLimit) {
		t.Errorf("walk: %v, want ErrLimit", err)
	}
	if err := d.RemoveAll("dir"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if err := d.RemoveAll("file"); err != nil {
		t.Fatal(err)
	}
	if err := d.Walk(t.Context(), 10, func(e *Entry) error { return fmt.Errorf("%s is left", e.Path) }); err != nil {
		t.Error(err)
	}
	intact(t, staging, secret)
}

// TestWithoutLinks has links in a directory where none is followed.
func TestWithoutLinks(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	plain := d.WithoutLinks()
	for _, dir := range []string{"real/sub", "from/sub"} {
		if err := d.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Symlink("real", "link"); err != nil {
		t.Fatal(err)
	}
	staging, remove, err := d.Staging()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	create := func(name string) error {
		p, err := plain.Create(name, staging)
		if err != nil {
			return err
		}
		return p.Commit()
	}
	sub := func(name string) error {
		s, err := plain.Sub(name)
		if err != nil {
			return err
		}
		return s.Close()
	}
	for what, err := range map[string]error{
		"a file": create("link/a"), "a file further down": create("link/sub/a"), "a directory": plain.MkdirAll("link/new"), "the link": plain.MkdirAll("link"),
		"opening": sub("link"), "opening further down": sub("link/sub"), "linking": plain.Symlink("x", "link/x"),
	} {
		if !errors.Is(err, ErrType) {
			t.Errorf("%s: %v, want %v", what, err, ErrType)
		}
	}
	if left, err := os.ReadDir(filepath.Join(path, "real")); err != nil || len(left) != 1 {
		t.Errorf("by the link were made %v, %v", left, err)
	}
	for what, err := range map[string]error{
		"a file": create("real/new/dir/a"), "a file at the top": create("a"), "in place of the link": create("link"), "a directory": plain.MkdirAll("more/dir"), "opening": sub("real/sub"), "the top": sub("."),
	} {
		if err != nil {
			t.Errorf("without links, %s: %v", what, err)
		}
	}
	if err := sub("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestOtherSeparator has names with the separator that Windows has besides.
func TestOtherSeparator(t *testing.T) {
	for _, name := range []string{`a\b`, `..\..\x`, `d/.git\config`, `\x`} {
		if got, err := cleanName(name, '\\'); !errors.Is(err, ErrName) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if got, err := cleanName(name, '/'); err != nil || got != name {
			t.Errorf("%s where it is a character: %q, %v", name, got, err)
		}
	}
}

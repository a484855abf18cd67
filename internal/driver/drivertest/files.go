package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var (
	asUser = guestapi.FileOptions{}
	asRoot = guestapi.FileOptions{User: sandbox.Root}
)

// testFile checks the guest's file calls.
func testFile(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	dir := b.Dir(t)
	t.Run("WriteRead", func(t *testing.T) { fileWriteRead(t, b, dir) })
	t.Run("Range", func(t *testing.T) { fileRange(t, b, dir) })
	t.Run("Append", func(t *testing.T) { fileAppend(t, b, dir) })
	t.Run("Stat", func(t *testing.T) { fileStat(t, b, dir) })
	t.Run("List", func(t *testing.T) { fileList(t, b, dir) })
	t.Run("Move", func(t *testing.T) { fileMove(t, b, dir) })
	t.Run("Remove", func(t *testing.T) { fileRemove(t, b, dir) })
	t.Run("Atomic", func(t *testing.T) { fileAtomic(t, b, dir) })
	t.Run("InPlace", func(t *testing.T) { fileInPlace(t, b, dir+"/in-place") })
	t.Run("Special", func(t *testing.T) { fileSpecial(t, b, dir) })
	t.Run("Owner", func(t *testing.T) { fileOwner(t, st, b) })
	t.Run("Big", func(t *testing.T) { fileBig(t, st) })
}

func (b *Box) write(t testing.TB, path, content string) {
	t.Helper()
	info, err := b.Client.Write(step(t), path, strings.NewReader(content), guestapi.WriteOptions{})
	if err != nil {
		t.Fatalf("Write %q: %v", path, err)
	}
	if info.Path != path {
		t.Errorf("Write %q: WriteInfo.Path is %q", path, info.Path)
	}
}

func (b *Box) read(t testing.TB, path string) string {
	t.Helper()
	r, size, err := b.Client.Read(step(t), path, 0, -1, asUser)
	if err != nil {
		t.Fatalf("Read %q: %v", path, err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("Read %q: %v", path, err)
	}
	if size != int64(len(content)) {
		t.Errorf("Read %q: the size is %d, but %d bytes came", path, size, len(content))
	}
	return string(content)
}

// wantKind fails the test if err is not of the given kind.
func wantKind(t testing.TB, what string, err error, kind sandbox.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got %v (kind %q), want kind %s", what, err, sandbox.KindOf(err), kind)
	}
}

// wantRefused fails the test unless err is of a kind that blames the caller.
func wantRefused(t testing.TB, what string, err error) {
	t.Helper()
	switch sandbox.KindOf(err) {
	case sandbox.Invalid, sandbox.NotFound, sandbox.Conflict, sandbox.Unsupported, sandbox.Exhausted:
	default:
		t.Errorf("%s: got %v (kind %q), want it refused as the caller's mistake", what, err, sandbox.KindOf(err))
	}
}

func fileWriteRead(t *testing.T, b *Box, dir string) {
	for name, content := range map[string]string{
		"empty":           "",
		"text":            "hello\n",
		"bytes":           "\x00\xff\xfe\r\n",
		"a b'\"$`*?;&|#%": "name with what shells and URLs mind",
		"größe 測試 🧤":      "name beyond ASCII",
		"deep/er/file":    "parents are made",
		"large":           strings.Repeat("0123456789abcdef", 1<<17),
	} {
		path := dir + "/" + name
		b.write(t, path, content)
		if got := b.read(t, path); got != content {
			t.Errorf("Read %q gives %d bytes %q, want the %d that were written", name, len(got), short(got), len(content))
		}
		r := b.MustRun(t, Cmd{Argv: []string{"cat", path}})
		if r.Stdout != content {
			t.Errorf("a program reads %d bytes of %q, want %d", len(r.Stdout), name, len(content))
		}
	}
	b.write(t, dir+"/text", "shorter")
	if got := b.read(t, dir+"/text"); got != "shorter" {
		t.Errorf("writing again must replace: got %q", got)
	}
	_, _, err := b.Client.Read(step(t), dir+"/none", 0, -1, asUser)
	wantKind(t, "Read of a file that is not there", err, sandbox.NotFound)
	_, _, err = b.Client.Read(step(t), dir, 0, -1, asUser)
	wantRefused(t, "Read of a directory", err)
	_, err = b.Client.Write(step(t), dir, strings.NewReader("x"), guestapi.WriteOptions{})
	wantRefused(t, "Write to a directory", err)
	_, err = b.Client.Write(step(t), dir+"/text/below", strings.NewReader("x"), guestapi.WriteOptions{})
	wantRefused(t, "Write below a file", err)
}

func fileRange(t *testing.T, b *Box, dir string) {
	b.write(t, dir+"/digits", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, 3, "012"}, {4, 2, "45"}, {8, 100, "89"}, {7, -1, "789"}, {10, -1, ""}, {3, 0, ""}} {
		r, size, err := b.Client.Read(step(t), dir+"/digits", c.offset, c.length, asUser)
		if err != nil {
			t.Errorf("Read from %d, %d bytes: %v", c.offset, c.length, err)
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != c.want || size != 10 {
			t.Errorf("Read from %d, %d bytes: got %q of %d, %v; want %q of 10", c.offset, c.length, got, size, err, c.want)
		}
	}
}

func fileAppend(t *testing.T, b *Box, dir string) {
	for _, part := range []string{"one\n", "two\n", ""} {
		_, err := b.Client.Write(step(t), dir+"/log", strings.NewReader(part), guestapi.WriteOptions{Append: true})
		if err != nil {
			t.Fatalf("Write with Append: %v", err)
		}
	}
	if got := b.read(t, dir+"/log"); got != "one\ntwo\n" {
		t.Errorf("Append: the file has %q", got)
	}
}

func fileStat(t *testing.T, b *Box, dir string) {
	b.write(t, dir+"/stat", "12345")
	b.MustSh(t, "chmod 640 stat; ln -s stat link; ln -s /nowhere/at/all dangling; mkfifo fifo")
	e, err := b.Client.Stat(step(t), dir+"/stat", asUser)
	if err != nil {
		t.Fatalf("Stat: %v", err)
	}
	if e.Name != "stat" || e.Path != dir+"/stat" || e.Type != guestapi.TypeFile || e.Size != 5 || e.Mode&0o777 != 0o640 {
		t.Errorf("Stat of a file: %+v", e)
	}
	if age := time.Since(e.ModifiedTime).Abs(); age > 10*time.Minute {
		t.Errorf("Stat: the modification time %v is %v off the host's clock", e.ModifiedTime, age)
	}
	if e.Owner == "" || e.Group == "" || !strings.HasSuffix(e.Permissions, "rw-r-----") {
		t.Errorf("Stat: owner %q, group %q, permissions %q", e.Owner, e.Group, e.Permissions)
	}
	for name, want := range map[string]struct {
		typ    guestapi.FileType
		target string
	}{
		"link": {guestapi.TypeSymlink, "stat"}, "dangling": {guestapi.TypeSymlink, "/nowhere/at/all"},
		"fifo": {guestapi.TypeUnspecified, ""}, ".": {guestapi.TypeDirectory, ""},
	} {
		e, err := b.Client.Stat(step(t), dir+"/"+name, asUser)
		if err != nil || e.Type != want.typ || e.SymlinkTarget != want.target {
			t.Errorf("Stat of %s: got %+v, %v; want type %s, target %q, without following a link", name, e, err, want.typ, want.target)
		}
	}
	_, err = b.Client.Stat(step(t), dir+"/none", asUser)
	wantKind(t, "Stat of what is not there", err, sandbox.NotFound)
}

func fileList(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkdir -p list/a/b/c && cd list && touch 1 a/2 a/b/3 a/b/c/4 .hidden && ln -s .. up && ln -s /nowhere broken")
	for depth, want := range map[int][]string{
		1: {".hidden", "1", "a", "broken", "up"},
		2: {".hidden", "1", "a", "a/2", "a/b", "broken", "up"},
		9: {".hidden", "1", "a", "a/2", "a/b", "a/b/3", "a/b/c", "a/b/c/4", "broken", "up"},
	} {
		l, err := b.Client.ListDir(step(t), dir+"/list", depth, asUser)
		if err != nil {
			t.Errorf("ListDir, depth %d: %v", depth, err)
			continue
		}
		var got []string
		for _, e := range l.Entries {
			got = append(got, strings.TrimPrefix(e.Path, dir+"/list/"))
		}
		if !slices.Equal(got, want) || l.Truncated {
			t.Errorf("ListDir, depth %d: got %q, want %q: in order, links not followed", depth, got, want)
		}
	}
	l, err := b.Client.ListDir(step(t), dir+"/list/a/b/c/4", 1, asUser)
	if err == nil {
		t.Errorf("ListDir of a file gives %+v, want an error", l)
	} else {
		wantRefused(t, "ListDir of a file", err)
	}
	_, err = b.Client.ListDir(step(t), dir+"/none", 1, asUser)
	wantKind(t, "ListDir of what is not there", err, sandbox.NotFound)

	const many = guestapi.MaxListEntries + 500
	b.MustSh(t, fmt.Sprintf("mkdir many && cd many && seq 1 %d | xargs touch", many))
	l, err = b.Client.ListDir(step(t), dir+"/many", 1, asUser)
	if err != nil || len(l.Entries) != guestapi.MaxListEntries || !l.Truncated {
		t.Errorf("ListDir of %d files: want %d and Truncated, got %v", many, guestapi.MaxListEntries, err)
	}
	if err := b.Client.Remove(step(t), dir+"/many", asUser); err != nil {
		t.Errorf("Remove of %d files: %v", many, err)
	}
}

func fileMove(t *testing.T, b *Box, dir string) {
	b.write(t, dir+"/from", "moved")
	b.write(t, dir+"/dir/inner", "inner")
	if err := b.Client.Move(step(t), dir+"/from", dir+"/to", asUser); err != nil {
		t.Fatalf("Move: %v", err)
	}
	if got := b.read(t, dir+"/to"); got != "moved" {
		t.Errorf("after Move the file has %q", got)
	}
	_, err := b.Client.Stat(step(t), dir+"/from", asUser)
	wantKind(t, "Stat of what was moved", err, sandbox.NotFound)
	if err := b.Client.Move(step(t), dir+"/dir", dir+"/other dir", asUser); err != nil {
		t.Errorf("Move of a directory: %v", err)
	} else if got := b.read(t, dir+"/other dir/inner"); got != "inner" {
		t.Errorf("after Move of a directory its file has %q", got)
	}
	wantKind(t, "Move of what is not there", b.Client.Move(step(t), dir+"/none", dir+"/x", asUser), sandbox.NotFound)
}

func fileRemove(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkdir -p gone/a/b outside && touch gone/1 gone/a/b/2 outside/stays && ln -s ../outside gone/link && chmod 500 gone/a")
	if err := b.Client.MakeDir(step(t), dir+"/made/here", asUser); err != nil {
		t.Errorf("MakeDir: %v", err)
	}
	b.MustSh(t, "touch made/here/writable")
	wantKind(t, "MakeDir of what exists", b.Client.MakeDir(step(t), dir+"/made/here", asUser), sandbox.Conflict)
	b.MustSh(t, "chmod 700 gone/a")
	if err := b.Client.Remove(step(t), dir+"/gone", asUser); err != nil {
		t.Errorf("Remove of a directory with all in it: %v", err)
	}
	if r := b.MustRun(t, Sh("ls outside; ls -d gone")); r.Stdout != "stays\n" {
		t.Errorf("Remove must remove all, and not follow links; left: %v", r)
	}
	wantKind(t, "Remove of what is not there", b.Client.Remove(step(t), dir+"/gone", asUser), sandbox.NotFound)
}

// fileAtomic breaks off an upload. The old file must stay.
func fileAtomic(t *testing.T, b *Box, dir string) {
	b.write(t, dir+"/atomic/file", "old")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("broken upload")
	_, err := b.Client.Write(ctx, dir+"/atomic/file", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), failingReader{broken}), guestapi.WriteOptions{})
	if err == nil {
		t.Error("Write from a reader that fails succeeds")
	}
	eventually(t, "a broken upload leaves something behind", func() bool {
		return b.MustSh(t, "ls -A atomic") == "file\n"
	})
	if got := b.read(t, dir+"/atomic/file"); got != "old" {
		t.Errorf("after a broken upload the file has %d bytes %q, want the old ones", len(got), short(got))
	}
}

// fileInPlace writes a file that has another name and is open. Both show the new
// contents, and watches show no other name.
func fileInPlace(t *testing.T, b *Box, dir string) {
	for what, text := range map[string]string{"short": "new", "long": strings.Repeat("0123456", 1<<18)} {
		dir := dir + "/" + what
		b.write(t, dir+"/file", "old contents")
		e := b.watch(t, dir, true)
		b.MustSh(t, "cd '"+dir+"'; ln file other")
		b.write(t, dir+"/file", text)
		e.want(t, "file", guestapi.EventWrite)
		if got := b.read(t, dir+"/other"); got != text {
			t.Errorf("%s: another name of a written file has %d bytes, want %d", what, len(got), len(text))
		}
		b.write(t, dir+"/made", text)
		e.want(t, "made", guestapi.EventCreate)
		e.want(t, "made", guestapi.EventChmod)
		e.want(t, "made", guestapi.EventWrite)
		for _, ev := range e.seen {
			if ev.Name != "file" && ev.Name != "other" && ev.Name != "made" {
				t.Errorf("%s: the watch reports %+v", what, ev)
			}
		}
		if got := b.MustSh(t, "cd '"+dir+"'; stat -c '%n %h %a' *; cat other made | wc -c"); got != fmt.Sprintf("file 2 644\nmade 1 644\nother 2 644\n%d\n", 2*len(text)) {
			t.Errorf("%s: %q", what, got)
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// fileSpecial reads a FIFO and devices, which must not hang the guest.
func fileSpecial(t *testing.T, b *Box, dir string) {
	b.MustSh(t, "mkfifo pipe")
	for _, path := range []string{dir + "/pipe", "/dev/zero", "/dev/tty"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second*raceFactor)
		r, _, err := b.Client.Read(ctx, path, 0, 10, asUser)
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			r.Close()
		}
		if ctx.Err() != nil {
			t.Errorf("Read of %s hangs (%v), want it refused or answered", path, err)
		}
		cancel()
	}
	b.Answers(t, "after reading special files")
}

func fileOwner(t *testing.T, st *site, b *Box) {
	st.s.isolated(t, st)
	b.write(t, "/tmp/users", "by user")
	if st.Info().Features.OneUser {
		if e, err := b.Client.Stat(step(t), "/tmp/users", asUser); err != nil || e.Owner != sandbox.User {
			t.Errorf("Stat of a file of the only user: got %+v, %v", e, err)
		}
		return
	}
	if _, err := b.Client.Write(step(t), "/tmp/roots-dir/file", strings.NewReader("by root"), guestapi.WriteOptions{User: sandbox.Root}); err != nil {
		t.Fatalf("Write as root: %v", err)
	}
	for path, want := range map[string]string{"/tmp/users": sandbox.User, "/tmp/roots-dir/file": sandbox.Root, "/tmp/roots-dir": sandbox.Root} {
		if e, err := b.Client.Stat(step(t), path, asUser); err != nil || e.Owner != want {
			t.Errorf("Stat of %s: got %+v, %v; want owner %s", path, e, err, want)
		}
	}
	b.MustRoot(t, "chmod 700 /tmp/roots-dir; ln -s /tmp/roots-dir/file /tmp/link; echo x > /tmp/mine; chmod 600 /tmp/mine")
	for _, path := range []string{"/tmp/roots-dir/file", "/tmp/mine", "/tmp/link"} {
		if r, _, err := b.Client.Read(step(t), path, 0, -1, asUser); err == nil {
			r.Close()
			t.Errorf("Read as user of %s, which only root may, succeeds", path)
		} else {
			wantRefused(t, "Read as user of "+path, err)
		}
	}
	for what, err := range map[string]error{
		"ListDir": second(b.Client.ListDir(step(t), "/tmp/roots-dir", 1, asUser)),
		"Write":   second(b.Client.Write(step(t), "/tmp/roots-dir/new", strings.NewReader("x"), guestapi.WriteOptions{})),
		"Remove":  b.Client.Remove(step(t), "/tmp/roots-dir/file", asUser),
		"Move":    b.Client.Move(step(t), "/tmp/roots-dir/file", "/tmp/stolen", asUser),
		"MakeDir": b.Client.MakeDir(step(t), "/etc/made-by-user", asUser),
	} {
		wantRefused(t, what+" as user of what only root may", err)
	}
	if _, err := b.Client.Stat(step(t), "/tmp/roots-dir/file", asRoot); err != nil {
		t.Errorf("Stat as root: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// bigFile is the size of the large test file, in bytes.
const bigFile = 1 << 30

// fileBig writes and reads a file of random content. No process may hold all of
// it in memory.
func fileBig(t *testing.T, st *site) {
	size := int64(bigFile)
	if testing.Short() {
		size /= 16
	}
	spec := st.s.h.Spec()
	spec.Limits.DiskBytes = max(spec.Limits.DiskBytes, size+size/4)
	b := st.boxOf(t, spec)
	path := b.Dir(t) + "/big"

	sum := sha256.New()
	content := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sum)
	heap := watchHeap()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := b.Client.Write(ctx, path, content, guestapi.WriteOptions{}); err != nil {
		t.Fatalf("Write of %d MiB: %v", size>>20, err)
	}
	wrote := time.Since(began)
	want := hex.EncodeToString(sum.Sum(nil))

	r, err := b.Run(ctx, Cmd{Argv: []string{"sha256sum", path}})
	if got, _, _ := strings.Cut(r.Stdout, " "); err != nil || got != want {
		t.Fatalf("a program sees a file of other content: %v, %v, want sum %s", err, r, want)
	}
	began = time.Now()
	body, n, err := b.Client.Read(ctx, path, 0, -1, asUser)
	if err != nil || n != size {
		t.Fatalf("Read of %d MiB: size %d, %v", size>>20, n, err)
	}
	defer body.Close()
	back := sha256.New()
	if n, err := io.Copy(back, body); err != nil || n != size {
		t.Fatalf("Read of %d MiB: %d bytes came, %v", size>>20, n, err)
	}
	if got := hex.EncodeToString(back.Sum(nil)); got != want {
		t.Errorf("Read of %d MiB gives other content: sum %s, want %s", size>>20, got, want)
	}
	mib := float64(size) / (1 << 20)
	t.Logf("%.0f MiB: written with %.0f MiB/s, read with %.0f MiB/s", mib, mib/wrote.Seconds(), mib/time.Since(began).Seconds())
	heap.check(t, "streaming a file", streamHeap)
}

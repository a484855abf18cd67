package safepath

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// archive makes a tar archive.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := h.PAXRecords["content"]
		h.PAXRecords = nil
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Mode: 0o644, PAXRecords: map[string]string{"content": content}}
}

// other is an entry of a type that is left out.
func other(name string, size int) tar.Header {
	h := file(name, strings.Repeat("x", size))
	h.Typeflag, h.Size = tar.TypeCont, int64(size)
	return h
}

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

// tree lists what is below d: files with what they hold, links with where they
// lead.
func tree(t testing.TB, d *Dir) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := d.Walk(t.Context(), 1000, func(e *Entry) error {
		switch {
		case e.Mode.IsDir():
			got[e.Path] = "/"
		case e.Mode.Type() == fs.ModeSymlink:
			target, err := d.root.Readlink(e.Path)
			got[e.Path] = "-> " + target
			return err
		default:
			b, err := d.root.ReadFile(e.Path)
			got[e.Path] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestExtract(t *testing.T) {
	needLinks(t)
	d, staging, dir, secret := open(t)
	write(t, d, staging, "keep/old", "old")
	write(t, d, staging, "keep/new", "old")
	if err := os.Symlink("../secret", filepath.Join(dir, "planted")); err != nil {
		t.Fatal(err)
	}
	setuid := file("keep/program", "x")
	setuid.Mode = 0o6755
	when := time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)
	setuid.ModTime = when
	data := archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./a/", Typeflag: tar.TypeDir, Mode: 0},
		file("./a/b/c", "c"), file("keep/new", "new"), setuid, file("planted", "mine"),
		link("out", "/etc/passwd"), link("up", "../../secret"),
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "a/b/c"},
		tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}, tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5},
		file("twice", "1"), file("twice", "2"), file("zeros", strings.Repeat("\x00", 200<<10)),
	)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(data)
	z.Close()
	for name, input := range map[string][]byte{"plain": data, "gzip": packed.Bytes()} {
		t.Run(name, func(t *testing.T) {
			n, err := d.Extract(t.Context(), bytes.NewReader(input), staging, Limits{Files: 100, Bytes: 1 << 20, Depth: 10, Ratio: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if n.Files != 7 || n.Links != 3 || n.Skipped != 2 {
				t.Errorf("counts: %+v", n)
			}
			want := map[string]string{
				"a": "/", "a/b": "/", "a/b/c": "c", "keep": "/", "keep/old": "old", "keep/new": "new", "keep/program": "x",
				"planted": "mine", "out": "-> /etc/passwd", "up": "-> ../../secret", "hard": "c", "twice": "2",
				"zeros": strings.Repeat("\x00", 200<<10),
			}
			if diff := cmp.Diff(want, tree(t, d)); diff != "" {
				t.Errorf("the tree (-want +got):\n%s", diff)
			}
			fi, err := d.Lstat("keep/program")
			if err != nil || fi.Mode() != 0o755 || !fi.ModTime().Equal(when) {
				t.Errorf("a program: %v, %v, %v", fi.Mode(), fi.ModTime(), err)
			}
			intact(t, staging, secret)
		})
	}
}

// TestExtractBad has archives of which nothing may be left.
func TestExtractBad(t *testing.T) {
	needLinks(t)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(archive(t, file("zeros", strings.Repeat("\x00", 30<<20))))
	z.Close()
	many := make([]tar.Header, 60)
	for i := range many {
		many[i] = file("f"+strings.Repeat("x", i), "")
	}
	good := archive(t, file("first", "1"), file("second", strings.Repeat("2", 4096)))
	liar := tar.Header{Name: "liar", Mode: 0o644, Size: 1 << 40}
	var lies bytes.Buffer
	w := tar.NewWriter(&lies)
	if err := w.WriteHeader(&liar); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"dotdot":            {archive(t, file("ok", "x"), file("../evil", "x")), ErrName},
		"dotdot inside":     {archive(t, file("a/../../evil", "x")), ErrName},
		"absolute":          {archive(t, file("ok", "x"), file("/tmp/evil", "x")), ErrName},
		"long":              {archive(t, file(strings.Repeat("x", 5000), "x")), ErrName},
		"not UTF-8":         {archive(t, file("\xff\xfe", "x")), ErrName},
		"hard link out":     {archive(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}), ErrName},
		"hard link abs":     {archive(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), ErrName},
		"hard link by link": {archive(t, link("l", ".."), tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l/secret"}), nil},
		"by a link":         {archive(t, link("l", ".."), file("l/secret", "evil")), nil},
		"by an abs link":    {archive(t, link("l", "/tmp"), file("l/evil", "evil")), nil},
		"dir over file":     {archive(t, file("there", "x"), tar.Header{Name: "there/", Typeflag: tar.TypeDir}), nil},
		"file over dir":     {archive(t, file("old", "x")), ErrType},
		"too many":          {archive(t, many...), ErrLimit},
		"too big":           {archive(t, file("big", strings.Repeat("x", 5<<20))), ErrLimit},
		"left out too big":  {archive(t, other("a", 3<<20), other("b", 3<<20)), ErrLimit},
		"itself too big":    {archive(t, other(".", 3<<20), other(".", 3<<20)), ErrLimit},
		"bomb":              {bomb.Bytes(), ErrLimit},
		"size that lies":    {lies.Bytes(), ErrLimit},
		"too deep":          {archive(t, file(strings.Repeat("d/", 20)+"f", "x")), ErrLimit},
		"cut":               {good[:700], io.ErrUnexpectedEOF},
		"cut between files": {good[:1024], io.ErrUnexpectedEOF},
		"cut in a file":     {good[:2000], io.ErrUnexpectedEOF},
		"garbage":           {[]byte(strings.Repeat("garbage!", 200)), tar.ErrHeader},
		"gzip garbage":      {append([]byte{0x1f, 0x8b}, strings.Repeat("x", 100)...), gzip.ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			d, staging, _, secret := open(t)
			write(t, d, staging, "old/file", "old")
			_, err := d.Extract(t.Context(), bytes.NewReader(tc.data), staging, Limits{Files: 50, Bytes: 4 << 20, Depth: 10, Ratio: 20})
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(map[string]string{"old": "/", "old/file": "old"}, tree(t, d)); diff != "" {
				t.Errorf("the tree (-want +got):\n%s", diff)
			}
			intact(t, staging, secret)
		})
	}
}

// TestExtractEnds ends with its context in the middle of an entry that is left out.
func TestExtractEnds(t *testing.T) {
	d, staging, _, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := &endingReader{r: bytes.NewReader(archive(t, other("a", 3<<20))), end: cancel}
	if _, err := d.Extract(ctx, r, staging, Limits{}); !errors.Is(err, context.Canceled) || r.n > 1<<20 {
		t.Errorf("%v after %d bytes", err, r.n)
	}
}

// An endingReader calls end when it is first read, and counts its bytes.
type endingReader struct {
	r   io.Reader
	end func()
	n   int
}

func (r *endingReader) Read(p []byte) (int, error) {
	r.end()
	n, err := r.r.Read(p)
	r.n += n
	return n, err
}

func TestExport(t *testing.T) {
	needLinks(t)
	d, staging, dir, _ := open(t)
	write(t, d, staging, "a/b", "b")
	write(t, d, staging, "ü", "u")
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	os.WriteFile(filepath.Join(dir, "bad\xffname"), []byte("x"), 0o644)
	var b bytes.Buffer
	n, err := d.Export(t.Context(), &b, Limits{})
	if err != nil || n.Links != 1 || n.Files < 2 {
		t.Fatalf("%+v, %v", n, err)
	}
	os.Remove(filepath.Join(dir, "bad\xffname"))
	b.Reset()
	if _, err := d.Export(t.Context(), &b, Limits{}); err != nil {
		t.Fatal(err)
	}
	want := tree(t, d)
	e, stagingE, _, _ := open(t)
	if _, err := e.Extract(t.Context(), &b, stagingE, Limits{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tree(t, e)); diff != "" {
		t.Errorf("out and in again (-want +got):\n%s", diff)
	}
	// A hole of a terabyte is not worth an archive of one.
	f, _ := os.Create(filepath.Join(dir, "sparse"))
	if err := f.Truncate(1 << 40); err == nil {
		b.Reset()
		if _, err := d.Export(t.Context(), &b, Limits{Bytes: 1 << 30}); !errors.Is(err, ErrLimit) || b.Len() > 0 {
			t.Errorf("%v, %d bytes written", err, b.Len())
		}
	}
	f.Close()
}

func FuzzExtract(f *testing.F) {
	f.Add(archive(f, file("a", "x"), link("l", ".."), file("l/secret", "evil")))
	f.Add(archive(f, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}))
	f.Add(archive(f, file("a/b/../../c", "x"), tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o4777}))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, staging, dir, secret := open(t)
		lim := Limits{Files: 20, Bytes: 1 << 20, Depth: 5, Ratio: 10}
		n, err := d.Extract(t.Context(), bytes.NewReader(data), staging, lim)
		intact(t, staging, secret)
		if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 3 {
			t.Fatalf("beside the directory: %v", entries)
		}
		found := 0
		werr := d.Walk(t.Context(), 1000, func(e *Entry) error {
			found++
			if e.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
				t.Errorf("%s has mode %v", e.Path, e.Mode)
			}
			return nil
		})
		if werr != nil || err != nil && found > 0 {
			t.Errorf("after %v there are %d files (%v)", err, found, werr)
		}
		if n.Bytes > lim.Bytes || n.total() > lim.Files {
			t.Errorf("more than the limits: %+v", n)
		}
	})
}

// deepArchive has empty files without entries for the directories above them, each
// below depth directories of its own.
func deepArchive(t testing.TB, files, depth int) []byte {
	t.Helper()
	headers := make([]tar.Header, files)
	for i := range headers {
		headers[i] = file(fmt.Sprint(i, "/", strings.Repeat("a/", depth-1), "f"), "")
	}
	return archive(t, headers...)
}

// TestExtractCountsDirectories has archives whose names imply directories.
func TestExtractCountsDirectories(t *testing.T) {
	t.Run("MoreThanTheLimit", func(t *testing.T) {
		d, staging, _, secret := open(t)
		n, err := d.Extract(t.Context(), bytes.NewReader(deepArchive(t, 4, 198)), staging, Limits{Files: 4, Bytes: 1})
		if !errors.Is(err, ErrLimit) {
			t.Errorf("4 files in 792 directories: %+v, %v; want a limit", n, err)
		}
		if got := tree(t, d); len(got) > 0 {
			t.Errorf("%d files are there", len(got))
		}
		intact(t, staging, secret)
	})
	t.Run("MadeOnTheWay", func(t *testing.T) {
		_, staging, _, _ := open(t)
		x := extraction{ctx: t.Context(), into: staging, lim: Limits{Files: 10}}
		if err := x.all(bytes.NewReader(deepArchive(t, 4, 198))); !errors.Is(err, ErrLimit) {
			t.Errorf("%+v, %v; want a limit", x.counts, err)
		}
		if got := len(tree(t, staging)); got > 10 {
			t.Errorf("it made %d files and directories, and 10 are the most", got)
		}
	})
	t.Run("Entries", func(t *testing.T) {
		d, staging, _, _ := open(t)
		same := make([]tar.Header, 11)
		for i := range same {
			same[i] = tar.Header{Name: "a/", Typeflag: tar.TypeDir}
		}
		if _, err := d.Extract(t.Context(), bytes.NewReader(archive(t, same...)), staging, Limits{Files: 10}); !errors.Is(err, ErrLimit) {
			t.Errorf("11 entries of one directory: %v, want a limit", err)
		}
	})
	t.Run("Exact", func(t *testing.T) {
		d, staging, _, _ := open(t)
		data := archive(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, file("a/b/c", "x"), tar.Header{Name: "a/", Typeflag: tar.TypeDir},
			tar.Header{Name: "a/b/", Typeflag: tar.TypeDir}, tar.Header{Name: "a/hard", Typeflag: tar.TypeLink, Linkname: "a/b/c"}, tar.Header{Name: "d/e/", Typeflag: tar.TypeDir})
		n, err := d.Extract(t.Context(), bytes.NewReader(data), staging, Limits{Files: 6})
		if want := (Counts{Files: 1, Directories: 4, Links: 1, Bytes: 1}); err != nil || n != want {
			t.Errorf("%+v, %v; want %+v", n, err, want)
		}
	})
	t.Run("Update", func(t *testing.T) {
		d, staging, _, _ := open(t)
		name := strings.Repeat("a/", 50) + "f"
		for files, want := range map[int]error{50: ErrLimit, 51: nil} {
			_, err := d.Update(t.Context(), bytes.NewReader(archive(t, file(name, "x"))), staging, Limits{Files: files}, Update{Placed: []string{name}})
			if !errors.Is(err, want) {
				t.Errorf("with a limit of %d: %v, want %v", files, err, want)
			}
		}
	})
}

func BenchmarkExtractDeep(b *testing.B) {
	data := deepArchive(b, 10, 198)
	for b.Loop() {
		d, staging, _, _ := open(b)
		if _, err := d.Extract(b.Context(), bytes.NewReader(data), staging, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

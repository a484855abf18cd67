package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	reader "github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/image/erofs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// entry is an entry of a layer in a test: a name that ends in / is a directory,
// "a -> b" a symbolic and "a = b" a hard link, and anything else a file with its
// name for content, unless there is another.
func entry(name string) tar.Header {
	h := tar.Header{Name: name, Mode: 0o644, Uid: 5, Gid: 6, Typeflag: tar.TypeReg}
	if from, to, ok := strings.Cut(name, " -> "); ok {
		h.Name, h.Linkname, h.Typeflag = from, to, tar.TypeSymlink
	} else if from, to, ok := strings.Cut(name, " = "); ok {
		h.Name, h.Linkname, h.Typeflag = from, to, tar.TypeLink
	} else if strings.HasSuffix(name, "/") {
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
	}
	return h
}

// tarOf returns a layer of entries; a file's content is "layer:name".
func tarOf(t testing.TB, layer string, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := entry(name)
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = layer + ":" + name
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

// unpackTars applies layers and returns what a reader sees: for each path its
// content, or where a link leads. What every image gets is left out.
func unpackTars(t testing.TB, limits Limits, layers ...[]byte) (map[string]string, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	u := newUnpacker(w, limits)
	for _, l := range layers {
		if err := u.apply(bytes.NewReader(l)); err != nil {
			return nil, err
		}
	}
	if err := w.Finish(u.finished()); err != nil {
		t.Fatal(err)
	}
	return readImage(t, f.Name()), nil
}

func readImage(t testing.TB, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case name == ".":
		case d.IsDir():
			got[name] = "/"
		case d.Type() == fs.ModeSymlink:
			to, err := fs.ReadLink(img, name)
			got[name] = "-> " + to
			return err
		case d.Type().IsRegular():
			data, err := fs.ReadFile(img, name)
			got[name] = string(data)
			return err
		default:
			got[name] = d.Type().String()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLayers(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers [][]string
		want   map[string]string
	}{
		{"Plain", [][]string{{"./", "./a", "./d/", "./d/b", "l -> a"}},
			map[string]string{"a": "1:./a", "d": "/", "d/b": "1:./d/b", "l": "-> a"}},
		{"MissingParents", [][]string{{"x/y/z"}},
			map[string]string{"x": "/", "x/y": "/", "x/y/z": "1:x/y/z"}},
		{"Absolute", [][]string{{"/a"}},
			map[string]string{"a": "1:/a"}},
		{"Replace", [][]string{{"a", "d/", "d/x", "e"}, {"a", "e/", "e/y", "d"}},
			map[string]string{"a": "2:a", "e": "/", "e/y": "2:e/y", "d": "2:d"}},
		{"DirectoryStays", [][]string{{"d/", "d/x"}, {"d/", "d/y"}},
			map[string]string{"d": "/", "d/x": "1:d/x", "d/y": "2:d/y"}},
		{"Whiteout", [][]string{{"a", "d/", "d/x", "b"}, {".wh.a", ".wh.d", "c"}},
			map[string]string{"b": "1:b", "c": "2:c"}},
		{"WhiteoutOfNothing", [][]string{{"a"}, {".wh.b", "no/.wh.c"}},
			map[string]string{"a": "1:a"}},
		{"WhiteoutSparesItsLayer", [][]string{{"d/", "d/old"}, {"d/", "d/new", ".wh.d", "e", ".wh.e"}},
			map[string]string{"d": "/", "d/new": "2:d/new", "e": "2:e"}},
		{"Opaque", [][]string{{"d/", "d/x", "d/s/", "d/s/y"}, {"d/", "d/new", "d/s/", "d/s/z", "d/.wh..wh..opq"}},
			map[string]string{"d": "/", "d/new": "2:d/new", "d/s": "/", "d/s/z": "2:d/s/z"}},
		{"OpaqueOfLink", [][]string{{"r/", "r/x", "l -> r"}, {"l/.wh..wh..opq"}},
			map[string]string{"r": "/", "l": "-> r"}},
		{"StorageDriverMeta", [][]string{{"a", ".wh..wh.plnk/", ".wh..wh.aufs"}},
			map[string]string{"a": "1:a"}},
		{"HardLinks", [][]string{{"a", "b = a"}, {"c = ./b", ".wh.a"}},
			map[string]string{"b": "1:a", "c": "1:a"}},
		{"LinkKeepsOldName", [][]string{{"a"}, {"b = a", ".wh.a"}},
			map[string]string{"b": "1:a"}},
		{"LinkToItself", [][]string{{"a", "a = a"}},
			map[string]string{"a": "1:a"}},
		{"ThroughLink", [][]string{{"usr/", "usr/bin/", "bin -> usr/bin"}, {"bin/sh"}},
			map[string]string{"usr": "/", "usr/bin": "/", "bin": "-> usr/bin", "usr/bin/sh": "2:bin/sh"}},
		{"ThroughLinkUp", [][]string{{"l -> ../../../../x", "l/a"}},
			map[string]string{"l": "-> ../../../../x", "x": "/", "x/a": "1:l/a"}},
		{"ThroughAbsoluteLink", [][]string{{"d/", "d/l -> /e", "d/l/a"}},
			map[string]string{"d": "/", "d/l": "-> /e", "e": "/", "e/a": "1:d/l/a"}},
		{"LinkIsReplaced", [][]string{{"e/", "l -> e"}, {"l/"}, {"l/a"}},
			map[string]string{"e": "/", "l": "/", "l/a": "3:l/a"}},
		{"Odd", [][]string{{"a\nb", "\xff\xfe", strings.Repeat("n", 255)}},
			map[string]string{"a\nb": "1:a\nb", "\xff\xfe": "1:\xff\xfe", strings.Repeat("n", 255): "1:" + strings.Repeat("n", 255)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var layers [][]byte
			for i, names := range c.layers {
				layers = append(layers, tarOf(t, fmt.Sprint(i+1), names...))
			}
			got, err := unpackTars(t, DefaultLimits(), layers...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// raw returns a layer with one header, as it is, and content.
func raw(t testing.TB, h *tar.Header, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostileLayers(t *testing.T) {
	small := Limits{Files: 100, Bytes: 1 << 20, Ratio: 200}
	loop := tarOf(t, "1", "a -> b", "b -> a", "a/x")
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprint("f", i))
	}
	deep := strings.Repeat("d/", 101)
	whole := tarOf(t, "1", "a", "b", "c")
	for _, c := range []struct {
		name  string
		layer []byte
		kind  sandbox.Kind
		text  string
	}{
		{"Climbs", tarOf(t, "1", "../a"), sandbox.Invalid, "leads out"},
		{"ClimbsInside", tarOf(t, "1", "a/../../b"), sandbox.Invalid, "leads out"},
		{"ClimbsByLink", tarOf(t, "1", "l = ../../etc/passwd"), sandbox.Invalid, "leads out"},
		{"LinkToNothing", tarOf(t, "1", "l = a"), sandbox.Invalid, "not a file"},
		{"LinkToDirectory", tarOf(t, "1", "d/", "l = d"), sandbox.Invalid, "not a file"},
		{"LinkToRoot", tarOf(t, "1", "l = /"), sandbox.Invalid, "not a file"},
		{"LinkLoop", loop, sandbox.Invalid, "too many links"},
		{"BelowFile", tarOf(t, "1", "a", "a/b"), sandbox.Invalid, "not a directory"},
		{"LongName", tarOf(t, "1", strings.Repeat("n", 256)), sandbox.Invalid, "255 bytes"},
		{"LongPath", tarOf(t, "1", strings.Repeat("n/", 3000)), sandbox.Invalid, "4096 bytes"},
		{"BadWhiteout", tarOf(t, "1", ".wh..."), sandbox.Invalid, "whiteout without a file name"},
		{"RootIsFile", raw(t, &tar.Header{Name: "/", Typeflag: tar.TypeSymlink, Linkname: "x"}, ""), sandbox.Invalid, "root"},
		{"LongTarget", tarOf(t, "1", "l -> "+strings.Repeat("t", 4096)), sandbox.Invalid, "leads to"},
		{"Owner", raw(t, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Uid: 1 << 32, Format: tar.FormatGNU}, ""), sandbox.Invalid, "has the owner"},
		{"TooMany", tarOf(t, "1", many...), sandbox.Exhausted, "100 files"},
		{"TooManyParents", tarOf(t, "1", deep), sandbox.Exhausted, "100 files"},
		{"TooManyAgain", tarOf(t, "1", strings.Fields(strings.Repeat("same ", 401))...), sandbox.Exhausted, "100 files"},
		{"TooLarge", raw(t, &tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1<<20 + 1}, strings.Repeat("x", 1<<20+1)), sandbox.Exhausted, "1 MiB"},
		{"Truncated", whole[:len(whole)-2000], sandbox.Invalid, "too early"},
		{"TruncatedData", tarOf(t, "1", "a")[:513], sandbox.Invalid, "too early"},
		{"Garbage", bytes.Repeat([]byte("not a tar "), 200), sandbox.Invalid, "not a tar archive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := unpackTars(t, small, c.layer)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 300 {
				t.Errorf("%v: want one of kind %s about %q", err, c.kind, c.text)
			}
		})
	}
}

// TestLinksAreBounded shows that a layer cannot make every name a long way.
func TestLinksAreBounded(t *testing.T) {
	names := []string{"x/"}
	for i := range 39 {
		names = append(names, fmt.Sprintf("l%d -> %sl%d", i+1, strings.Repeat("x/../", 800), i))
	}
	names = append(names, "l0 -> x")
	for i := range 200 {
		names = append(names, fmt.Sprintf("l39/f%d", i))
	}
	if _, err := unpackTars(t, Limits{Files: 300, Bytes: 1 << 20, Ratio: 1}, tarOf(t, "1", names...)); err == nil {
		t.Error("200 names of thirty thousand steps each were followed")
	}
}

// TestDevices shows that what only root can make elsewhere is left out or kept,
// and harms nobody.
func TestDevices(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "dev/sda", Typeflag: tar.TypeBlock, Devmajor: 8, Mode: 0o666},
		{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666},
		{Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o666},
		{Name: "su", Typeflag: tar.TypeReg, Mode: 0o6755},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := unpackTars(t, DefaultLimits(), b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"pipe": fs.ModeNamedPipe.String(), "su": ""}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// TestComplete shows what every image gets, and that nothing of its own is lost.
func TestComplete(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	u := newUnpacker(w, DefaultLimits())
	if err := u.apply(bytes.NewReader(raw(t, &tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Size: 4, Mode: 0o640}, "a:b:"))); err != nil {
		t.Fatal(err)
	}
	if err := u.complete(); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(u.finished()); err != nil {
		t.Fatal(err)
	}
	got := readImage(t, f.Name())
	want := "a:b:\nuser:x:1000:1000::/home/user:/bin/sh\n"
	if got["etc/passwd"] != want || got["etc/group"] != "root:x:0:\nuser:x:1000:\n" || got["tmp"] != "/" || got["etc/hostname"] != "sandbox\n" {
		t.Errorf("%q", got)
	}
}

func FuzzLayer(f *testing.F) {
	f.Add(tarOf(f, "1", "a", "d/", "d/b", "l -> d", "l/c", "h = a", ".wh.a", "d/.wh..wh..opq"))
	f.Add(raw(f, &tar.Header{Name: "s", Typeflag: tar.TypeGNUSparse, Format: tar.FormatGNU}, ""))
	limits := Limits{Files: 1000, Bytes: 4 << 20, Ratio: 10}
	lower := tarOf(f, "0", "a", "d/", "d/b", "l -> d", "etc/passwd")
	f.Fuzz(func(t *testing.T, layer []byte) {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		w := erofs.NewWriter(file)
		u := newUnpacker(w, limits)
		if err := u.apply(bytes.NewReader(lower)); err != nil {
			t.Fatal(err)
		}
		data, err := decompress(bytes.NewReader(layer), limits.Ratio)
		if err == nil {
			err = u.apply(data)
		}
		if err != nil {
			if k := sandbox.KindOf(err); k != sandbox.Invalid && k != sandbox.Exhausted {
				t.Fatalf("of kind %s: %v", k, err)
			}
			return
		}
		if err := u.complete(); err != nil && !errors.Is(err, sandbox.Exhausted) && !errors.Is(err, sandbox.Invalid) {
			t.Fatal(err)
		}
		if err := w.Finish(u.finished()); err != nil {
			t.Fatal(err)
		}
		// What another program reads is a tree of what was counted.
		if got := readImage(t, file.Name()); len(got) > limits.Files {
			t.Fatalf("%d files", len(got))
		}
	})
}

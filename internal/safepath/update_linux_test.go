package safepath

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"aside", "file-to-dir", "dir-to-file/a/b", "gone/a", "not-empty/a", "not-empty/kept", "same"} {
		write(name, "old")
	}
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	staging, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer staging.Close()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	names := []string{"aside", "file-to-dir/a", "dir-to-file", "no\xffutf8/\xfe"}
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o640, Size: 3, Typeflag: tar.TypeReg, Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	u := Update{
		Aside: map[string]string{"aside": "aside.theirs", "absent": "x"}, Placed: append(names, "file-to-dir", "no\xffutf8"),
		Gone: []string{"file-to-dir", "dir-to-file", "dir-to-file/a", "dir-to-file/a/b", "gone", "gone/a", "not-empty", "not-empty/a", "absent/x"},
	}
	// Cut anywhere, nothing is touched.
	for _, n := range []int{0, 600, 2000, archive.Len() - 1100} {
		_, err := d.Update(t.Context(), bytes.NewReader(archive.Bytes()[:n]), staging, Limits{AnyBytes: true}, u)
		if n > 0 && err == nil {
			t.Errorf("cut after %d of %d bytes, it was taken", n, archive.Len())
		}
		if _, err := os.Lstat(filepath.Join(dir, "gone/a")); n > 0 && err != nil {
			t.Fatalf("cut after %d bytes, it was begun", n)
		}
		if n == 0 { // an empty archive has nothing, but whole
			write("gone/a", "old")
			write("dir-to-file/a/b", "old")
			write("not-empty/a", "old")
			write("file-to-dir", "old")
			write("aside", "old")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Update(ctx, bytes.NewReader(archive.Bytes()), staging, Limits{AnyBytes: true}, u); err == nil {
		t.Error("it goes on when nobody wants it")
	}
	if _, err := d.Update(t.Context(), bytes.NewReader(archive.Bytes()), staging, Limits{}, u); !errors.Is(err, ErrName) {
		t.Errorf("names that are not UTF-8: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "aside.theirs")); err != nil {
		t.Fatal(err)
	}
	write("aside", "old")
	n, err := d.Update(t.Context(), bytes.NewReader(archive.Bytes()), staging, Limits{AnyBytes: true}, u)
	if err != nil || n.Files != 4 {
		t.Fatalf("%+v, %v", n, err)
	}
	want := map[string]string{
		"aside": "new", "aside.theirs": "old", "file-to-dir/a": "new", "dir-to-file": "new", "no\xffutf8/\xfe": "new", "not-empty/kept": "old", "same": "old",
	}
	got := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		got[name] = string(text)
		return err
	})
	if err != nil || len(got) != len(want) {
		t.Errorf("%q, %v", got, err)
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%q is %q, want %q", name, got[name], text)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "gone")); err == nil {
		t.Error("a directory that went is there")
	}
	// Removals alone need no archive.
	if _, err := d.Update(t.Context(), nil, staging, Limits{}, Update{Gone: []string{"same"}}); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if _, err := d.ExportOnly(t.Context(), &out, Limits{}, func(name string) bool { return name == "aside" }); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&out)
	if h, err := r.Next(); err != nil || h.Name != "aside" {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("it exports more: %v", err)
	}
}

// TestUpdateRefused: nothing is touched for an archive that has what nobody
// asked for, is compressed, or does not fit.
func TestUpdateRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	staging, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer staging.Close()
	pack := func(names ...string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, name := range names {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 2 << 20, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(bytes.Repeat([]byte("new."), 1<<19)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(pack("file")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	room := func(added, freed int64) error {
		if added < 2<<20 || freed <= 0 || freed > 1<<16 {
			t.Errorf("%d bytes are added and %d freed", added, freed)
		}
		return full
	}
	for name, c := range map[string]struct {
		archive []byte
		u       Update
		want    error
	}{
		"unasked":    {pack("file", "other"), Update{}, ErrName},
		"compressed": {zipped.Bytes(), Update{}, ErrLimit},
		"full":       {pack("file"), Update{Room: room}, full},
		"no plan":    {pack("file"), Update{Plan: func(*Update) error { return full }}, full},
	} {
		c.u.Placed = []string{"file"}
		if _, err := d.Update(t.Context(), bytes.NewReader(c.archive), staging, Limits{Ratio: 1}, c.u); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "old" {
			t.Errorf("%s: it has %d bytes, %v", name, len(text), err)
		}
	}
	if err := staging.Walk(t.Context(), 1, func(e *Entry) error { return errors.New(e.Path) }); err != nil {
		t.Errorf("left: %v", err)
	}
}

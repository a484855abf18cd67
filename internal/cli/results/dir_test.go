package results

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// aPNG is the beginning of a PNG of one pixel.
const aPNG = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01"

// aResult returns a result of these MIME types and values.
func aResult(pairs ...string) sandbox.Result {
	r := sandbox.Result{Data: map[string]json.RawMessage{}}
	for i := 0; i < len(pairs); i += 2 {
		value := pairs[i+1]
		if !sandbox.IsJSON(pairs[i]) {
			text, _ := json.Marshal(value)
			value = string(text)
		}
		r.Data[pairs[i]] = json.RawMessage(value)
	}
	return r
}

func TestFileOf(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte(aPNG))
	for _, c := range []struct {
		of   sandbox.Result
		want string
	}{
		{aResult("text/plain", "<Figure>", "image/png", png, sandbox.MIMEChart, "{}"), "png " + aPNG},
		{aResult("text/plain", "an SVG", "image/svg+xml", "<svg/>"), "svg <svg/>"},
		{aResult("text/plain", "a table", "text/html", "<table/>"), "html <table/>"},
		{aResult("application/json", `{"a":1}`), `json {"a":1}`},
		// What is not of its type.
		{aResult("text/plain", "text", "image/png", base64.StdEncoding.EncodeToString([]byte("GIF89a"))), "txt text"},
		{aResult("image/png", "not base64"), ""},
		{aResult("image/jpeg", png), ""},
		{aResult("x/unknown", "x"), ""},
		{sandbox.Result{Data: map[string]json.RawMessage{"text/plain": json.RawMessage("{}")}}, ""},
	} {
		f, ok := FileOf(c.of)
		got := ""
		if ok {
			got = f.Extension + " " + string(f.Data)
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.of, got, c.want)
		}
	}
}

// TestSave checks that a result never changes a file that exists, with hard links
// and without.
func TestSave(t *testing.T) {
	for name, link := range map[string]func(from, to string) error{
		"hard links":    nil,
		"no hard links": func(string, string) error { return errors.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "plot-1.png"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if link != nil {
				d.link = link
			}
			var saved []string
			for _, f := range []File{
				{"image/png", "png", []byte("a")}, {"image/svg+xml", "svg", []byte("b")}, {"text/html", "html", []byte("c")}, {"image/png", "png", []byte("d")},
			} {
				name, err := d.Save(f)
				if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				saved = append(saved, filepath.Base(name)+" "+string(text))
			}
			if d := cmp.Diff([]string{"plot-2.png a", "plot-3.svg b", "result-1.html c", "plot-4.png d"}, saved); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "plot-1.png")); err != nil || string(text) != "mine" {
				t.Errorf("%q, %v", text, err)
			}
			files, err := fs.Glob(os.DirFS(dir), ".*")
			if err != nil || len(files) != 0 {
				t.Errorf("left: %v, %v", files, err)
			}
		})
	}
}

// TestSaveLinks checks that a result leaves the directory by no link.
func TestSaveLinks(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(dir, "plot-1.png")); err != nil {
		if runtime.GOOS == "windows" {
			t.Skipf("symbolic links need a right: %v", err)
		}
		t.Fatal(err)
	}
	for _, link := range []func(from, to string) error{nil, func(string, string) error { return errors.ErrUnsupported }} {
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if link != nil {
			d.link = link
		}
		if name, err := d.Save(File{"image/png", "png", []byte("a")}); err != nil || filepath.Base(name) == "plot-1.png" {
			t.Errorf("%q, %v", name, err)
		}
		if _, err := os.Stat(outside); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file outside of the directory: %v", err)
		}
	}
}

// TestDirWithoutResults opens a directory and saves nothing: only the directories that
// existed before remain.
func TestDirWithoutResults(t *testing.T) {
	base := t.TempDir()
	for _, c := range []struct {
		dir, before, after string // directories below base
		save               bool
	}{
		{dir: "a/b", after: "."},
		{dir: "c/d", before: "c", after: "c"},
		{dir: "e", before: "e", after: "e"},
		{dir: "f/g", after: "f/g", save: true},
	} {
		if err := os.MkdirAll(filepath.Join(base, c.before), 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := Open(filepath.Join(base, c.dir))
		if err != nil {
			t.Fatal(err)
		}
		if c.save {
			if _, err := d.Save(File{MIME: "image/png", Extension: "png", Data: []byte(aPNG)}); err != nil {
				t.Error(err)
			}
		}
		d.Close()
		left := filepath.Join(base, c.dir)
		for _, err := os.Stat(left); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(left) {
			left = filepath.Dir(left)
		}
		if want := filepath.Join(base, c.after); left != want {
			t.Errorf("%s: %s is left, want %s", c.dir, left, want)
		}
	}
	// A directory that cannot be made leaves nothing, either.
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(base, "file", "x")); err == nil {
		t.Error("a directory below a file was made")
	}
}

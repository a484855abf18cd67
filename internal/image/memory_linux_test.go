//go:build !race

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLongLinks has an image be refused that is small when it is compressed, and has
// few files, but whose links take much memory.
func TestLongLinks(t *testing.T) {
	target := strings.Repeat("a", maxPath-1)
	layer := zipped(t, func(z *gzip.Writer) error {
		w := tar.NewWriter(z)
		for n := range 20_000 {
			h := tar.Header{Name: fmt.Sprintf("%d/%d", n/1000, n%1000), Typeflag: tar.TypeSymlink, Linkname: target}
			if err := w.WriteHeader(&h); err != nil {
				return err
			}
		}
		return w.Close()
	})
	refused(t, saved(t, layer, [32]byte{}), "names and links")
}

// TestTextOfTree shows that what is replaced and removed counts no more.
func TestTextOfTree(t *testing.T) {
	u := newUnpacker(nil, DefaultLimits())
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range 3 {
		for _, h := range []tar.Header{
			{Name: "dir/", Typeflag: tar.TypeDir},
			{Name: "dir/link", Typeflag: tar.TypeSymlink, Linkname: "target"},
			{Name: "dir/link2", Typeflag: tar.TypeLink, Linkname: "dir/link"},
		} {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	if err := u.apply(&b); err != nil {
		t.Fatal(err)
	}
	if want := len("dir" + "link" + "target" + "link2"); u.text != want {
		t.Errorf("%d bytes of names and links, want %d", u.text, want)
	}
	u.remove(u.root, "dir")
	if u.text != 0 || u.nodes != 0 {
		t.Errorf("%d bytes of names and links of %d files are left", u.text, u.nodes)
	}
}

// TestWindow has a layer be refused that takes much memory to decompress.
func TestWindow(t *testing.T) {
	for window, want := range map[int]sandbox.Kind{32 << 20: "", 64 << 20: sandbox.Exhausted} {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := z.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			if err := z.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := decompress(&b, DefaultLimits().Ratio)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			r.Close()
		}
		if sandbox.KindOf(err) != want {
			t.Errorf("a window of %d bytes: %v", window, err)
		}
	}
}

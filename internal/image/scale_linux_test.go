//go:build !race

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	reader "github.com/erofs/go-erofs"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// saved writes an archive, as docker save does, of an image with one layer, which
// may be compressed, and returns its path. diff is the layer's digest.
func saved(t *testing.T, layer []byte, diff [32]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.tar")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range map[string][]byte{
		"layer": layer,
		"config.json": fmt.Appendf(nil, `{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`,
			runtime.GOARCH, diff),
		"manifest.json": []byte(`[{"Config":"config.json","RepoTags":["x:1"],"Layers":["layer"]}]`),
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(t *testing.T, write func(z *gzip.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		err = write(z)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// refused loads an image that is too much.
func refused(t *testing.T, path, why string) {
	t.Helper()
	s := newStore(t, nil)
	if _, err := s.Load(t.Context(), path, LoadOptions{}); !errors.Is(err, sandbox.Exhausted) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want an error of kind Exhausted about %q", err, why)
	}
	if l := left(t, s); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
}

// TestMillionFiles has an image of a million files be refused, and nothing be
// left of it.
func TestMillionFiles(t *testing.T) {
	layer := zipped(t, func(z *gzip.Writer) error {
		w := tar.NewWriter(z)
		for n := range 1_000_000 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d/%d", n/1000, n%1000), Mode: 0o644}); err != nil {
				return err
			}
		}
		return w.Close()
	})
	refused(t, saved(t, layer, [32]byte{}), "500000 files")
}

const holeSize = 10 << 30

// TestHole has a file of 10 GiB that is a hole take no space.
func TestHole(t *testing.T) {
	layer := sparseTar()
	s := newStore(t, nil)
	if _, err := s.Load(t.Context(), saved(t, layer, sha256.Sum256(layer)), LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Root(t.Context(), "x:1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Open(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if used := fi.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("a hole of 10 GiB takes %d bytes of the disk", used)
	}
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if hole, err := fs.Stat(img, "hole"); err != nil || hole.Size() != holeSize {
		t.Errorf("the file: %v, %v", hole, err)
	}
}

// sparseTar is an archive of a hole, in the form that GNU tar gives it.
func sparseTar() []byte {
	b := make([]byte, 512)
	large := func(at []byte) { // a number too large for digits
		at[0] = 0x80
		binary.BigEndian.PutUint64(at[4:], holeSize)
	}
	copy(b, "hole")
	copy(b[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	b[156] = tar.TypeGNUSparse
	copy(b[257:], "ustar  \x00")
	large(b[386:398]) // the only piece: nothing, at the end
	copy(b[398:], "00000000000\x00")
	large(b[483:495])
	sum := 8 * int(' ')
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(b, make([]byte, 1024)...)
}

// TestBomb has a few megabytes that become 10 GiB be refused long before they do.
func TestBomb(t *testing.T) {
	const piece = 64 << 20
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "zeros", Size: holeSize, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	layer := zipped(t, func(z *gzip.Writer) error { _, err := z.Write(b.Bytes()); return err })
	zeros := zipped(t, func(z *gzip.Writer) error { _, err := z.Write(make([]byte, piece)); return err })
	layer = append(layer, bytes.Repeat(zeros, holeSize/piece)...)
	refused(t, saved(t, layer, [32]byte{}), "times")
}

package filearchive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

type manifest struct{ Image string }

var testManifest = manifest{"sha256:1"}

// imageOf returns the archive of an image whose files are data.
func imageOf(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(&b, testManifest, bytes.NewReader(data), 1<<30)
	if err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return b.Bytes()
}

func TestArchive(t *testing.T) {
	for _, size := range []int{0, 1, partSize - 1, partSize, 3*partSize + 7} {
		data := bytes.Repeat([]byte("0123456"), size/7+1)[:size]
		var m manifest
		r, err := Read(bytes.NewReader(imageOf(t, data)), &m)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, data) || m != testManifest {
			t.Errorf("%d bytes: read %d, %v, manifest %+v", size, len(got), err, m)
		}
	}
	broken := errors.New("broken")
	if _, err := Write(io.Discard, testManifest, io.MultiReader(strings.NewReader("x"), errReader{broken}), 10); !errors.Is(err, broken) {
		t.Errorf("files that cannot be read: %v", err)
	}
	if _, err := Write(io.Discard, testManifest, errReader{io.ErrUnexpectedEOF}, 10); err == nil {
		t.Error("files that end early are no error")
	}
	if _, err := Write(io.Discard, testManifest, strings.NewReader("12345678901"), 10); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("files beyond the limit: %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestArchiveDamaged reads archives that lack a file, have it twice, or have
// other content.
func TestArchiveDamaged(t *testing.T) {
	whole := imageOf(t, bytes.Repeat([]byte("x"), 2*partSize+1))
	const files = 5
	for i := range files {
		for what, change := range map[string]func(*tar.Writer, *tar.Header, []byte) error{
			"missing": func(*tar.Writer, *tar.Header, []byte) error { return nil },
			"twice": func(w *tar.Writer, h *tar.Header, data []byte) error {
				return errors.Join(put(w, h, data), put(w, h, data))
			},
			"other": func(w *tar.Writer, h *tar.Header, data []byte) error {
				return put(w, h, bytes.Repeat([]byte("y"), len(data)))
			},
		} {
			if i == files-1 && what == "twice" {
				continue // nothing reads on after the end
			}
			var b bytes.Buffer
			w, r, n := tar.NewWriter(&b), tar.NewReader(bytes.NewReader(whole)), 0
			for {
				h, err := r.Next()
				if err == io.EOF {
					break
				}
				data, rerr := io.ReadAll(r)
				do := put
				if h.Typeflag == tar.TypeReg {
					if n == i {
						do = change
					}
					n++
				}
				if err := errors.Join(err, rerr, do(w, h, data)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil || n != files {
				t.Fatal(n, err)
			}
			s, err := Read(&b, new(manifest))
			if err == nil {
				_, err = io.Copy(io.Discard, s)
			}
			if err == nil {
				t.Errorf("file %d %s: the archive is read", i, what)
			}
		}
	}
	s, err := Read(bytes.NewReader(whole[:len(whole)/2]), new(manifest))
	if err == nil {
		_, err = io.Copy(io.Discard, s)
	}
	if err == nil {
		t.Error("half an archive is read")
	}
}

func put(w *tar.Writer, h *tar.Header, data []byte) error {
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

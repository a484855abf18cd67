package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An entry is a file in an archive.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// archive returns the archive of a platform: the program, README.md and LICENSE.
func (r *Release) archive(p Platform) ([]byte, error) {
	program, err := r.program(p)
	if err != nil {
		return nil, err
	}
	entries := []entry{{p.program(), 0o755, program}}
	for _, name := range []string{"LICENSE", "README.md"} {
		data, err := r.read(filepath.Join(r.Source, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name, 0o644, data})
	}
	if strings.HasSuffix(p.archive(), ".zip") {
		return packZip(entries, r.Time)
	}
	return packTar(entries, r.Time)
}

func packTar(entries []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	t := tar.NewWriter(gz)
	for _, e := range entries {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: at,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, packing(err)
		}
		if _, err := t.Write(e.data); err != nil {
			return nil, packing(err)
		}
	}
	if err := t.Close(); err != nil {
		return nil, packing(err)
	}
	if err := gz.Close(); err != nil {
		return nil, packing(err)
	}
	return b.Bytes(), nil
}

func packZip(entries []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		h.SetMode(e.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, packing(err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, packing(err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, packing(err)
	}
	return b.Bytes(), nil
}

func packing(err error) error { return sandbox.Errorf(sandbox.Internal, "pack an archive: %w", err) }

package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on an archive of images.
const (
	maxArchiveEntries = 20_000
	maxArchiveLinks   = 8
)

// files gives access to the files of an archive or a directory of images, by
// name.
type files interface {
	// open returns a file and its size. A missing file is fs.ErrNotExist.
	open(name string) (io.ReadCloser, int64, error)
	close() error
}

// openFiles opens a file or directory that a person named: a directory, or a tar
// archive, possibly compressed.
func (s *Store) openFiles(ctx context.Context, file string) (files, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%w", err), "name a file of docker save, or a directory in OCI layout")
	}
	if fi.IsDir() {
		root, err := os.OpenRoot(file)
		if err != nil {
			return nil, err
		}
		return dirFiles{root}, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, 4)
	n, _ := f.ReadAt(magic, 0)
	if compressed(magic[:n]) {
		defer f.Close()
		return s.spool(ctx, f)
	}
	return newTarFiles(ctx, f, false)
}

// spool copies a stream, decompressed, to a temporary file, because the archive
// is read more than once.
func (s *Store) spool(ctx context.Context, r io.Reader) (_ files, err error) {
	if err := s.prepare(); err != nil {
		return nil, explainWrite(err)
	}
	data, err := decompress(&contextReader{ctx, r, func(int64) {}}, s.opts.Limits.Ratio)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	f, err := os.CreateTemp(s.path(partialDir), "archive-*")
	if err != nil {
		return nil, explainWrite(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	n, err := io.Copy(f, io.LimitReader(data, s.opts.Limits.Bytes+1))
	if err != nil {
		return nil, explainWrite(err)
	}
	if n > s.opts.Limits.Bytes {
		return nil, tooLarge(s.opts.Limits.Bytes)
	}
	return newTarFiles(ctx, f, true)
}

// dirFiles are the files of a directory. The root prevents access outside it.
type dirFiles struct{ root *os.Root }

func (d dirFiles) open(name string) (io.ReadCloser, int64, error) {
	fi, err := d.root.Stat(path.Clean(name))
	if err != nil {
		return nil, 0, err
	}
	if !fi.Mode().IsRegular() {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "%s is not a file", quote(name))
	}
	f, err := d.root.Open(path.Clean(name))
	if err != nil {
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

func (d dirFiles) close() error { return d.root.Close() }

// tarFiles are the files of a tar archive. newTarFiles indexes them once, and
// open reads them at their offsets.
type tarFiles struct {
	f         *os.File
	temporary bool
	at        map[string]tarFile
}

type tarFile struct {
	offset, size int64
	link         string // the name of another file, if not empty
}

func newTarFiles(ctx context.Context, f *os.File, temporary bool) (_ *tarFiles, err error) {
	t := &tarFiles{f: f, temporary: temporary, at: map[string]tarFile{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	archive := tar.NewReader(f)
	for first := true; ; first = false {
		h, err := archive.Next()
		if err == io.EOF {
			return t, nil
		}
		if err != nil && first {
			return nil, t.noArchive(err)
		}
		if err != nil {
			return nil, badArchive(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(t.at) >= maxArchiveEntries {
			return nil, sandbox.Errorf(sandbox.Exhausted, "the archive has more than %d files", maxArchiveEntries)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			// The tar reader does not read ahead, so the file offset is the start
			// of the data.
			offset, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			t.at[name] = tarFile{offset: offset, size: h.Size}
		case tar.TypeSymlink:
			t.at[name] = tarFile{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			t.at[name] = tarFile{link: path.Clean(h.Linkname)}
		}
	}
}

// noArchive explains an error at the beginning of a file.
func (t *tarFiles) noArchive(err error) error {
	if err := badArchive(err); sandbox.KindOf(err) != sandbox.Invalid {
		return err
	}
	what := "the input"
	if !t.temporary {
		what = quote(t.f.Name())
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is not an archive of images", what),
		"make one with docker save or podman save")
}

func (t *tarFiles) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean(name)
	for range maxArchiveLinks {
		at, ok := t.at[name]
		if !ok {
			break
		}
		if at.link == "" {
			return io.NopCloser(io.NewSectionReader(t.f, at.offset, at.size)), at.size, nil
		}
		name = at.link
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (t *tarFiles) close() error {
	err := t.f.Close()
	if t.temporary {
		err = errors.Join(err, os.Remove(t.f.Name()))
	}
	return err
}

// compressed reports whether magic is the start of compressed data.
func compressed(magic []byte) bool {
	return strings.HasPrefix(string(magic), "\x1f\x8b") || strings.HasPrefix(string(magic), "\x28\xb5\x2f\xfd")
}

// readAll reads a file of at most most bytes.
func readAll(f files, name string, most int64) ([]byte, error) {
	r, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > most {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s has %d bytes; the maximum is %d", quote(name), size, most)
	}
	return io.ReadAll(io.LimitReader(r, most))
}

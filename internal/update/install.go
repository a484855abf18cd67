package update

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// startTime is the timeout for the new program to report its version.
const startTime = 30 * time.Second

// install replaces path by the program in a release's archive.
func (u *Updater) install(ctx context.Context, path, version string, f File) (err error) {
	// The directory must be beside the program, because a rename needs the same
	// file system. Other users must not be able to write to it. The name is
	// random, so leftovers of a killed update do no harm.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".glovebox-update-")
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%w", err),
			"run the command as the owner of %s", filepath.Dir(path))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Download to a file first, because the archive must be verified before it
	// is unpacked.
	archive, err := os.CreateTemp(dir, "archive-")
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	defer archive.Close()
	if err := u.download(ctx, f, archive); err != nil {
		return err
	}
	fresh := filepath.Join(dir, filepath.Base(path))
	if err := unpack(archive, f, fresh); err != nil {
		return err
	}
	if err := u.starts(ctx, fresh, version); err != nil {
		return err
	}
	old := filepath.Join(dir, "old")
	if err := swap(fresh, path, old, u.OS); err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "replace the program: %w", err), "run the command as the owner of %s", path)
	}
	if err := u.starts(ctx, path, version); err != nil {
		if back := swap(old, path, fresh, u.OS); back != nil {
			return errors.Join(err, sandbox.Errorf(sandbox.Internal, "restore the old program: %w", back))
		}
		return err
	}
	return nil
}

// starts checks that the program at path starts and reports that version.
func (u *Updater) starts(ctx context.Context, path, version string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	got, err := u.Version(ctx, path)
	if err == nil && strings.TrimPrefix(got, "v") != strings.TrimPrefix(version, "v") {
		err = sandbox.Errorf(sandbox.Invalid, "the program reports version %q", got)
	}
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the program of release %s does not start here: %w", version, err),
			"report this error; the old program stays in place")
	}
	return nil
}

// swap moves fresh to path, and keeps the old program at old.
func swap(fresh, path, old, system string) error {
	if system != "windows" {
		// With a hard link, a program exists at path at every moment.
		if err := os.Link(path, old); err == nil {
			return os.Rename(fresh, path)
		}
	}
	// For file systems without hard links, and for Windows, where a running
	// program can be renamed but not replaced.
	if err := os.Rename(path, old); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Rename(old, path))
	}
	return nil
}

// unpack writes the program in an archive to path.
func unpack(archive *os.File, f File, path string) error {
	program := "glovebox"
	if f.OS == "windows" {
		program = "glovebox.exe"
	}
	r, err := open(archive, f, program)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "unpack %s: %w", f.Name, err)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "unpack %s: %w", f.Name, err)
	}
	n, err := io.Copy(out, io.LimitReader(r, maxProgram+1))
	if n > maxProgram {
		err = errors.New("the program is too large")
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "unpack %s: %w", f.Name, err)
	}
	return nil
}

// open finds the program in an archive.
func open(archive *os.File, f File, program string) (io.Reader, error) {
	if strings.HasSuffix(f.Name, ".zip") {
		z, err := zip.NewReader(archive, f.Size)
		if err != nil {
			return nil, err
		}
		return z.Open(program)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	gz, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(gz); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the archive has no " + program)
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg && strings.TrimPrefix(h.Name, "./") == program {
			return t, nil
		}
	}
}

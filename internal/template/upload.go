package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hashForm is the form of the hash by which an SDK names an archive. The hash is
// that of the client's files, with sizes of directories that the archive does not
// have, so a server cannot compute it. It is therefore a name, and each principal
// has its own.
var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// CheckHash refuses a text that is no hash of files.
func CheckHash(hash string) error {
	if !hashForm.MatchString(hash) {
		return sandbox.Errorf(sandbox.Invalid, "filesHash: %s is not 64 hexadecimal digits", quote(hash))
	}
	return nil
}

// filesOf returns the directory of a principal's archives.
func (s *Service) filesOf(p sandbox.Principal) string {
	sum := sha256.Sum256([]byte(p))
	return filepath.Join(s.filesDir(), hex.EncodeToString(sum[:]))
}

// HasFiles returns a principal's template by its ID or its name. It reports whether
// the archive with that hash is here for it, and keeps it for the next build.
func (s *Service) HasFiles(ctx context.Context, p sandbox.Principal, idOrName, hash string) (Template, bool, error) {
	if err := CheckHash(hash); err != nil {
		return Template{}, false, err
	}
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return Template{}, false, err
	}
	here, err := s.touch(p, hash)
	return t, here, err
}

// touch keeps an archive from being removed for its age.
func (s *Service) touch(p sandbox.Principal, hash string) (bool, error) {
	now := s.opts.Now()
	err := os.Chtimes(filepath.Join(s.filesOf(p), hash), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Upload stores an archive for a principal. size is its length, or -1. An archive
// that breaks off, or that is too long, leaves nothing. The error is of kind
// Exhausted if the archive, or all of the principal's together, are too long.
func (s *Service) Upload(ctx context.Context, p sandbox.Principal, hash string, size int64, r io.Reader) error {
	err := s.upload(ctx, p, hash, size, r)
	return sandbox.Wrap(explainWrite(err), "store files of template", "")
}

func (s *Service) upload(ctx context.Context, p sandbox.Principal, hash string, size int64, r io.Reader) error {
	if err := CheckHash(hash); err != nil {
		return err
	}
	most := s.opts.ContextSize
	if size > most {
		return s.tooLong()
	}
	name := s.filesOf(p)
	if err := os.MkdirAll(name, 0o700); err != nil {
		return err
	}
	room, release, err := s.reserve(p, hash, size)
	if err != nil {
		return err
	}
	defer release()
	dir, err := safepath.OpenDir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	staging, remove, err := dir.Staging()
	if err != nil {
		return err
	}
	defer remove()
	f, err := dir.Create(hash, staging)
	if err != nil {
		return err
	}
	defer f.Discard() //nolint:errcheck // after Commit it does nothing, and remove removes the rest
	n, err := io.Copy(f, io.LimitReader(contextReader{ctx, r}, room+1))
	switch {
	case err != nil:
		return err
	case n > room && size < 0 && room < most:
		return s.full()
	case n > room && size < 0:
		return s.tooLong()
	case size >= 0 && n != size:
		return sandbox.Errorf(sandbox.Invalid, "the archive broke off after %d of %d bytes", n, size)
	case n == 0:
		return sandbox.Errorf(sandbox.Invalid, "the archive is empty")
	}
	return f.Commit()
}

func (s *Service) tooLong() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "%w: it has more than %d bytes", ErrTooLong, s.opts.ContextSize),
		"exclude files with .dockerignore, or have the operator raise templates.context_size")
}

func (s *Service) full() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "your uploaded files have more than %d bytes together", maxUploads*s.opts.ContextSize),
		"build templates one after another, or try again later: files of ended builds are removed")
}

// An uploading is the part of a principal's bounds that uploads in progress may use.
type uploading struct {
	bytes    int64
	archives int
}

// reserve takes room for an archive before it is read, so that uploads at the same
// time stay below the bounds together. size is the archive's length, or -1: then the
// archive may have room bytes. The caller must call release when the archive is
// complete or gone.
func (s *Service) reserve(p sandbox.Principal, hash string, size int64) (room int64, release func(), err error) {
	most := s.opts.ContextSize
	s.uploadsMu.Lock()
	defer s.uploadsMu.Unlock()
	held, again, err := archivesIn(s.filesOf(p), hash)
	if err != nil {
		return 0, nil, err
	}
	busy := s.uploads[p]
	if !again && held.archives+busy.archives >= maxArchives {
		return 0, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "you have %d uploaded archives, which is the maximum", maxArchives),
			"copy several files in one step, or try again later: files of ended builds are removed")
	}
	room = min(most, maxUploads*most-held.bytes-busy.bytes)
	if room <= 0 || size > room {
		return 0, nil, s.full()
	}
	if size >= 0 {
		room = size
	}
	s.uploads[p] = uploading{busy.bytes + room, busy.archives + 1}
	return room, func() {
		s.uploadsMu.Lock()
		defer s.uploadsMu.Unlock()
		now := s.uploads[p]
		if now.archives--; now.archives == 0 {
			delete(s.uploads, p)
			return
		}
		now.bytes -= room
		s.uploads[p] = now
	}, nil
}

// archivesIn returns what the complete archives in a directory take, and whether the
// archive with that hash is one of them.
func archivesIn(dir, hash string) (held uploading, has bool, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return held, false, ignoreGone(err)
	}
	for _, e := range all {
		if !hashForm.MatchString(e.Name()) {
			continue // an upload in progress, which is reserved
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return held, false, err
		}
		held.bytes += fi.Size()
		held.archives++
		has = has || e.Name() == hash
	}
	return held, has, nil
}

// ignoreGone returns nil for a file that another request removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// explainWrite names a full disk of the server, and not the server's files.
func explainWrite(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return sandbox.NoSpace(full)
		}
	}
	return err
}

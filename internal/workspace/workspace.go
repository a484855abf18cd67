// Package workspace keeps workspaces: directories of the server's that outlive
// the sandboxes that have them mounted.
//
// A [Set] is all workspaces of a state directory, which several processes may
// use at the same time. [Open] makes one, and it lives until Close. A
// [Workspace] is one of them, opened for a while. Whose a workspace is, whether
// it is in use and when it goes is the engine's to know, which is the only
// package besides app that imports this one.
//
// What is in a workspace belongs to the code in sandboxes, which changes it at
// any moment. All access goes through package safepath, so no name and no link
// leads out, and what is being written is nowhere in reach of a sandbox until
// it is complete. A write that was acknowledged survives the end of this
// process; that it survives a loss of power is up to the file system.
//
// # Directory
//
//	secret     32 random bytes, made once
//	ID         a workspace: 64 hexadecimal digits
//	tmp/NAME   a process's own: files on their way in, workspaces on their way out
package workspace

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An ID names a workspace on disk and in the paths of files over HTTP. Who
// knows it can read the workspace, so it is a secret of its principal's. The
// store knows which ID the workspace of a name has.
type ID string

// ValidID reports whether s has the form of an ID.
func ValidID(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// A Set is all workspaces of a state directory.
type Set struct {
	path    string
	theirs  *Conversations // nil unless the directory is shared with theirs
	secret  []byte
	staging *safepath.Dir
	unlock  func() // lets others remove the staging directory
	temp    string // its path
}

// Open opens the workspaces in a directory, which it makes. What processes
// that are no more left half-done goes.
func Open(path string) (*Set, error) { return open(&Set{path: path}) }

func open(s *Set) (_ *Set, err error) {
	path := s.path
	defer func() {
		if err != nil {
			err = errors.Join(sandbox.Wrap(err, "open workspaces", ""), s.Close())
		}
	}()
	if err := os.MkdirAll(filepath.Join(path, "tmp"), 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	if s.secret, err = readSecret(filepath.Join(path, "secret")); err != nil {
		return nil, err
	}
	if err := s.removeStale(); err != nil {
		return nil, err
	}
	if s.temp, s.unlock, err = makeLocked(filepath.Join(path, "tmp")); err != nil {
		return nil, err
	}
	if s.staging, err = safepath.OpenDir(s.temp); err != nil {
		return s, err
	}
	err = s.staging.CheckLinks()
	if errors.Is(err, safepath.ErrFollowsLinks) {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "links in workspaces could lead to files elsewhere: %w", err),
			"what keeps workspaces runs on gVisor: run this program, or the engine's containers, on a kernel that keeps links apart, as Linux does")
	}
	return s, err
}

// Close ends the use of the set. Files that are being written are lost.
func (s *Set) Close() error {
	var errs []error
	if s.staging != nil {
		errs = append(errs, s.staging.Empty(), s.staging.Close())
	}
	if s.unlock != nil {
		errs = append(errs, os.Remove(s.temp))
		s.unlock()
	}
	return errors.Join(errs...)
}

// readSecret returns the secret of a file, which the first process makes.
func readSecret(path string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	secret, err := atomicfile.Once(path, fresh, 0o600)
	if err != nil {
		return nil, err
	}
	if len(secret) < 32 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Internal, "the file %s is damaged", path),
			"put back the one that was there: without it no link to a file is good any more")
	}
	return secret, nil
}

// Key returns a key for a purpose that only those have who can read the state
// directory.
func (s *Set) Key(purpose string) []byte {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte("key\x00" + purpose))
	return m.Sum(nil)
}

// NewID returns the ID of a workspace that is about to be made. A workspace that
// is made again under its name has another, so that who knew the first cannot
// read the second.
func NewID() ID {
	b := make([]byte, sha256.Size)
	rand.Read(b)
	return ID(hex.EncodeToString(b))
}

// Path returns where a workspace is, to be mounted.
func (s *Set) Path(id ID) string { return filepath.Join(s.path, string(id)) }

// Make makes a workspace, and reports whether there was none.
func (s *Set) Make(id ID) (made bool, err error) {
	if !s.valid(id) {
		return false, sandbox.Errorf(sandbox.Internal, "make workspace: not an ID")
	}
	err = os.Mkdir(s.Path(id), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err == nil && os.Geteuid() == 0 {
		// See [driver.Spec.Workspace].
		err = os.Lchown(s.Path(id), sandbox.UserUID, sandbox.UserUID)
	}
	return err == nil, err
}

// Remove takes a workspace away in one step. What was in it is deleted by
// purge, which may take a while.
func (s *Set) Remove(id ID) (purge func() error, err error) {
	name, err := s.takeAway(id)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return func() error { return nil }, nil
	}
	return func() error { return s.staging.RemoveAll(name) }, nil
}

// takeAway moves a workspace into the staging directory, and returns its name
// there, which is empty if there was none.
func (s *Set) takeAway(id ID) (name string, err error) {
	if !s.valid(id) {
		return "", sandbox.Errorf(sandbox.Internal, "remove workspace: not an ID")
	}
	name = "removed-" + rand.Text()
	err = os.Rename(s.Path(id), filepath.Join(s.temp, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return name, err
}

// Open opens a workspace. It fails with [sandbox.NotFound] if there is none.
func (s *Set) Open(id ID) (*Workspace, error) {
	if !s.valid(id) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	dir, err := safepath.OpenDir(s.Path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err != nil {
		return nil, err
	}
	return &Workspace{ID: id, dir: dir, set: s}, nil
}

// A Workspace is one workspace, held open. Its methods may be used by many
// goroutines at once. Names of files are relative to it; the errors for those
// that are wrong are of kind Invalid, and for those that are not there
// NotFound.
type Workspace struct {
	ID  ID
	dir *safepath.Dir
	set *Set
}

// Close closes the workspace.
func (w *Workspace) Close() error { return w.dir.Close() }

// Dir returns the workspace's directory.
func (w *Workspace) Dir() *safepath.Dir { return w.dir }

// Staging returns a directory in which to prepare what is to go into the
// workspace.
func (w *Workspace) Staging() *safepath.Dir { return w.set.staging }

// Read opens a regular file.
func (w *Workspace) Read(name string) (*os.File, fs.FileInfo, error) {
	f, fi, err := w.dir.Open(name)
	return f, fi, explain(err)
}

// Stat describes a file without following a link.
func (w *Workspace) Stat(name string) (fs.FileInfo, error) {
	fi, err := w.dir.Lstat(name)
	return fi, explain(err)
}

// Write puts all of r at name in one step, at its end: until then, and if r
// fails, what was there stays.
func (w *Workspace) Write(ctx context.Context, name string, r io.Reader) (int64, error) {
	p, err := w.dir.Create(name, w.set.staging)
	if err != nil {
		return 0, explain(err)
	}
	n, err := io.Copy(p, &contextReader{ctx, r})
	if err != nil {
		return 0, errors.Join(err, p.Discard())
	}
	if err := ctx.Err(); err != nil {
		return 0, errors.Join(err, p.Discard())
	}
	return n, explain(p.Commit())
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Delete removes a file, or a directory with all in it.
func (w *Workspace) Delete(name string) error {
	if _, err := w.dir.Lstat(name); err != nil {
		return explain(err)
	}
	return explain(w.dir.RemoveAll(name))
}

// Export writes the workspace as a tar archive of at most so many bytes.
func (w *Workspace) Export(ctx context.Context, out io.Writer, most int64) (safepath.Counts, error) {
	n, err := w.dir.Export(ctx, out, safepath.Limits{Bytes: most})
	return n, explain(err)
}

// maxRatio is how much an archive that is compressed may grow: text grows by
// ten, logs by fifty.
const maxRatio = 200

// Import takes a tar archive, which may be compressed by gzip, out into the
// workspace: all of it or nothing. It may have so many bytes and files; zero is
// no limit of ours.
func (w *Workspace) Import(ctx context.Context, in io.Reader, bytes, files int64) (safepath.Counts, error) {
	if files <= 0 || files > maxSnapshot {
		files = maxSnapshot
	}
	lim := safepath.Limits{Files: int(files), Bytes: bytes, Ratio: maxRatio}
	n, err := w.dir.Extract(ctx, in, w.set.staging, lim)
	return n, explain(err)
}

// explain gives errors of package safepath and of the system their kinds.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, safepath.ErrName), errors.Is(err, safepath.ErrType):
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	case errors.Is(err, safepath.ErrLimit):
		return sandbox.Errorf(sandbox.Exhausted, "%w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR): // a sandbox may change either meanwhile
		return sandbox.Errorf(sandbox.NotFound, "there is no such file")
	case sandbox.KindOf(err) != sandbox.Internal:
		return err
	case isBadLink(err):
		return sandbox.Errorf(sandbox.Invalid, "a link in the path leads out of the workspace, or in a circle")
	case isBadName(err):
		return sandbox.Errorf(sandbox.Invalid, "files cannot have that name on the server's system")
	case isBadContent(err):
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	return fmt.Errorf("workspace: %w", err)
}

// isBadContent reports whether err is about an archive that is not whole.
func isBadContent(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum)
}

// Handle names a workspace to those who must not know its ID: it opens nothing
// by itself.
func (id ID) Handle() string {
	sum := sha256.Sum256([]byte("handle\x00" + string(id)))
	return hex.EncodeToString(sum[:16])
}

// DiskUsed reports how much of the disk that a workspace is on is in use, in bytes:
// what it grows by is the most that any workspace on it can have grown. It is
// quick. ok is false where nothing tells.
func (w *Workspace) DiskUsed() (used int64, ok bool) { return diskUsed(w.set.path) }

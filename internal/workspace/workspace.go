// Package workspace keeps workspaces: directories of the server that outlive the
// sandboxes that mount them.
//
// A [Set] is all workspaces of a state directory, which several processes may use
// at the same time. [Open] opens it, and it lives until Close. A [Workspace] is
// one open workspace. The engine decides who owns a workspace, whether it is in
// use, and when it is removed. Only packages engine, guest and app import this
// package.
//
// The code in sandboxes may change the files of a workspace at any time. All
// access goes through package safepath, so no name and no link leads out. A file
// that is being written is out of a sandbox's reach until it is complete. A write
// that returned without an error survives the end of this process. Whether it
// survives a loss of power depends on the file system.
//
// # Directory
//
//	secret     32 random bytes, made once
//	ID         a workspace: 64 hexadecimal digits
//	tmp/NAME   the staging directory of a process, for new files and removed workspaces
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

// An ID names a workspace on disk and in the paths of files over HTTP. It is a
// secret of its principal, because it gives the right to read the workspace. The
// store maps names of workspaces to IDs.
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
	theirs  *Conversations // nil unless the directory has conversations of mcp-code-runner
	secret  []byte
	staging *safepath.Dir
	unlock  func() // releases the lock of the staging directory
	temp    string // path of the staging directory
}

// Open opens the workspaces in a directory, which it creates. It removes the
// unfinished files of processes that have ended. The caller closes the Set.
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
			"this kernel follows such links, as gVisor's does: run this program, or the engine's containers, on Linux itself")
	}
	return s, err
}

// Close closes the set. Unfinished writes are lost.
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

// readSecret returns the secret in a file. The first process creates it.
func readSecret(path string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	secret, err := atomicfile.Once(path, fresh, 0o600)
	if err != nil {
		return nil, err
	}
	if len(secret) < 32 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Internal, "the file %s is damaged", path),
			"restore the file from a backup; without it, all links to files become invalid")
	}
	return secret, nil
}

// Key returns a key for a purpose. Only a process that can read the state
// directory can compute it.
func (s *Set) Key(purpose string) []byte {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte("key\x00" + purpose))
	return m.Sum(nil)
}

// NewID returns a random ID for a new workspace. A workspace that is removed and
// created again under its name gets another ID. So a holder of the first ID
// cannot read the second workspace.
func NewID() ID {
	b := make([]byte, sha256.Size)
	rand.Read(b)
	return ID(hex.EncodeToString(b))
}

// Path returns the path of a workspace, for mounting it.
func (s *Set) Path(id ID) string { return filepath.Join(s.path, string(id)) }

// Make creates a workspace. made is false if it existed.
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

// Remove removes a workspace by an atomic rename. purge deletes its contents,
// which may take a while.
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

// takeAway moves a workspace into the staging directory. It returns the name
// there, or "" if there was no workspace.
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

// Open opens a workspace. The error wraps [sandbox.NotFound] if there is none.
// The caller closes the Workspace.
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

// A Workspace is one open workspace. It is safe for concurrent use. Names of
// files are relative to it. Errors wrap [sandbox.Invalid] for wrong names and
// [sandbox.NotFound] for missing files.
type Workspace struct {
	ID  ID
	dir *safepath.Dir
	set *Set
}

// Close closes the workspace.
func (w *Workspace) Close() error { return w.dir.Close() }

// Dir returns the workspace's directory.
func (w *Workspace) Dir() *safepath.Dir { return w.dir }

// Staging returns a directory in which to prepare files for the workspace.
func (w *Workspace) Staging() *safepath.Dir { return w.set.staging }

// Read opens a regular file. The caller closes it.
func (w *Workspace) Read(name string) (*os.File, fs.FileInfo, error) {
	f, fi, err := w.dir.Open(name)
	return f, fi, explain(err)
}

// Stat describes a file. It does not follow a link.
func (w *Workspace) Stat(name string) (fs.FileInfo, error) {
	fi, err := w.dir.Lstat(name)
	return fi, explain(err)
}

// Write writes all of r to name and returns the number of bytes. An atomic rename
// at the end replaces an existing file. If r fails, the existing file stays.
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

// A contextReader fails after its context has ended.
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

// Delete removes a file, or a directory with everything in it.
func (w *Workspace) Delete(name string) error {
	if _, err := w.dir.Lstat(name); err != nil {
		return explain(err)
	}
	return explain(w.dir.RemoveAll(name))
}

// Export writes the workspace as a tar archive with at most most bytes of files.
func (w *Workspace) Export(ctx context.Context, out io.Writer, most int64) (safepath.Counts, error) {
	n, err := w.dir.Export(ctx, out, safepath.Limits{Bytes: most})
	return n, explain(err)
}

// maxRatio bounds the decompressed size of an archive divided by its compressed
// size. Typical values are ten for text and fifty for logs.
const maxRatio = 200

// Import extracts a tar archive, optionally compressed by gzip, into the
// workspace. If unpacking fails, the workspace does not change. bytes and files
// bound the extracted files. Zero means no limit for bytes, and a million for
// files.
func (w *Workspace) Import(ctx context.Context, in io.Reader, bytes, files int64) (safepath.Counts, error) {
	if files <= 0 || files > MaxFiles {
		files = MaxFiles
	}
	lim := safepath.Limits{Files: int(files), Bytes: bytes, Ratio: maxRatio}
	n, err := w.dir.Extract(ctx, in, w.set.staging, lim)
	return n, explain(err)
}

// explain adds the kinds to errors of package safepath and of the system.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, safepath.ErrName), errors.Is(err, safepath.ErrType):
		return sandbox.Errorf(sandbox.Invalid, "%w", err)
	case errors.Is(err, safepath.ErrLimit):
		return sandbox.Errorf(sandbox.Exhausted, "%w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR): // the sandbox may change both meanwhile
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

// isBadContent reports whether err means a truncated or damaged archive.
func isBadContent(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) ||
		errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum)
}

// Handle returns a name of the workspace for callers that must not know its ID.
// It gives no access.
func (id ID) Handle() string {
	sum := sha256.Sum256([]byte("handle\x00" + string(id)))
	return hex.EncodeToString(sum[:16])
}

// DiskUsed returns the used bytes of the workspace's disk. Its growth bounds the
// growth of every workspace on the disk. It is fast. ok is false if the system
// does not report it.
func (w *Workspace) DiskUsed() (used int64, ok bool) { return diskUsed(w.set.path) }

package hostfiles

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of one copy.
const (
	maxFiles = 100_000
	maxBytes = 4 << 30
)

// Directories are the allowed directories.
type Directories struct {
	dirs []allowed
	// AllowToolFiles permits writing files that programs on this machine execute
	// or obey; see toolFile. It must be set before the first use.
	AllowToolFiles bool

	placing sync.Mutex // held by place
}

type allowed struct {
	path string // absolute, without links
	dir  *safepath.Dir
}

// Open opens the directories at paths, which must exist. The error wraps
// [sandbox.Invalid]. The caller closes the Directories.
func OpenDirectories(paths []string) (_ *Directories, err error) {
	s := &Directories{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, p := range paths {
		full, err := filepath.Abs(p)
		if err == nil {
			full, err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "allow directory %s: %w", p, err)
		}
		dir, err := safepath.OpenDir(full)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "allow directory %s: %w", p, err)
		}
		s.dirs = append(s.dirs, allowed{full, dir})
	}
	return s, nil
}

// Any reports whether a directory is allowed at all.
func (s *Directories) Any() bool { return len(s.dirs) > 0 }

// Close closes the directories.
func (s *Directories) Close() error {
	var errs []error
	for _, d := range s.dirs {
		errs = append(errs, d.dir.Close())
	}
	return errors.Join(errs...)
}

// paths returns the absolute paths of the directories, without links.
func (s *Directories) paths() []string {
	paths := make([]string, len(s.dirs))
	for i, d := range s.dirs {
		paths[i] = d.path
	}
	return paths
}

// findToRead returns the allowed directory that contains a path, and the rest of the
// path. Directories closes the directory. The path may reach the directory through
// links. The error wraps [sandbox.Invalid] for a relative path, and
// [sandbox.Unsupported] if no allowed directory contains it.
func (s *Directories) findToRead(name string) (*safepath.Dir, string, error) {
	d, rest, err := s.find(name)
	return d.dir, rest, err
}

// findToWrite is findToRead for a path that is to be written. It refuses a path that is
// a tool file or below one, by its name or through existing links. The returned
// rest has no links, except perhaps a last part that does not lead to a
// directory. The returned directory follows no links, so a link that is created
// later has no effect. With AllowToolFiles, findToWrite is findToRead.
func (s *Directories) findToWrite(name string) (*safepath.Dir, string, error) {
	d, rest, err := s.find(name)
	if err != nil || s.AllowToolFiles {
		return d.dir, rest, err
	}
	full := filepath.Join(d.path, filepath.FromSlash(rest))
	target := resolve(full)
	place := target
	if fi, err := os.Stat(target); rest != "." && (err != nil || !fi.IsDir()) {
		place = filepath.Join(resolve(filepath.Dir(full)), filepath.Base(full)) // a link is replaced
	}
	names := []string{rest}
	for _, p := range []string{target, place} {
		below, err := filepath.Rel(d.path, p)
		if err == nil {
			names = append(names, filepath.ToSlash(below))
		}
		if p == place && (err != nil || !filepath.IsLocal(below)) {
			return nil, "", sandbox.Errorf(sandbox.Invalid, "%s: a link leads out of the directory that was allowed", safepath.Show(name))
		}
	}
	for _, n := range names {
		if tool := toolFile(n); tool != "" {
			return nil, "", refusal(tool)
		}
	}
	return d.dir.WithoutLinks(), names[len(names)-1], nil
}

// place calls commit, which puts files at names below dir. It refuses if a
// directory would become a Git repository, because Git executes commands in its
// config. It places one copy at a time, so that two copies cannot each place a
// part of a repository.
func (s *Directories) place(dir *safepath.Dir, names []string, commit func() error) error {
	if s.AllowToolFiles {
		return commit()
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	if found := repositories(dir, names); len(found) > 0 {
		return repositoryRefusal(found[0])
	}
	return commit()
}

// repositoryRefusal returns the error for a directory that would become a Git
// repository.
func repositoryRefusal(dir string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "host_path: with HEAD, objects and refs in it, %s would be a Git repository, "+
		"whose config Git on this machine executes, so it is not written", safepath.Show(dir)),
		"%s", toolFileHint)
}

// refusal returns the error for a tool file.
func refusal(name string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "host_path: programs on this machine execute or obey %s, so it is not written", safepath.Show(name)),
		"%s", toolFileHint)
}

// toolFileHint says how to copy tool files nevertheless.
const toolFileHint = "pack it into an archive in the sandbox and copy that, or start the server with --allow-tool-files"

// resolve returns a path without links, as far as it exists.
func resolve(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	parent := filepath.Dir(name)
	if parent == name {
		return name
	}
	return filepath.Join(resolve(parent), filepath.Base(name))
}

func (s *Directories) find(name string) (allowed, string, error) {
	if !filepath.IsAbs(name) {
		return allowed{}, "", sandbox.Errorf(sandbox.Invalid, "%s: not an absolute path", safepath.Show(name))
	}
	candidates := []string{filepath.Clean(name)}
	if real, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
		candidates = append(candidates, filepath.Join(real, filepath.Base(name)))
	}
	for _, c := range candidates {
		for _, d := range s.dirs {
			rest, err := filepath.Rel(d.path, c)
			if err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator)) {
				return d, filepath.ToSlash(rest), nil
			}
		}
	}
	err := sandbox.Errorf(sandbox.Unsupported, "%s is in no directory that was allowed", safepath.Show(name))
	if len(s.dirs) == 0 {
		return allowed{}, "", sandbox.WithHint(err, "start the server with --allow-dir and the directory")
	}
	return allowed{}, "", sandbox.WithHint(err, "allowed are %s; start the server with --allow-dir to allow another", strings.Join(s.paths(), ", "))
}

// A File is a file that Walk found. Its Name has slashes. It is "" if the path
// itself is a file.
type File struct {
	Name       string
	Size       int64
	Executable bool
	// Content is nil for a directory. It is valid until visit returns.
	Content io.Reader
}

// Walk calls visit with the file at a path. If the path is a directory, Walk
// calls visit with everything below it, directories before their contents. A link
// to a file below that directory counts as that file. Walk returns the number of
// other links and special files, which it skips.
func (s *Directories) Walk(ctx context.Context, name string, visit func(File) error) (skipped int, err error) {
	dir, rest, err := s.findToRead(name)
	if err != nil {
		return 0, err
	}
	info, err := dir.Lstat(rest)
	if err != nil {
		return 0, explain(err)
	}
	left := int64(maxBytes)
	if !info.IsDir() {
		return 0, explain(read(dir, rest, "", &left, visit))
	}
	below, err := dir.Sub(rest)
	if err != nil {
		return 0, explain(err)
	}
	defer below.Close()
	err = below.Walk(ctx, maxFiles, func(e *safepath.Entry) error {
		if e.Mode.IsDir() {
			return visit(File{Name: e.Path})
		}
		err := read(below, e.Path, e.Path, &left, visit)
		if !e.Mode.IsRegular() && (errors.Is(err, safepath.ErrType) || isPathError(err)) {
			skipped++
			return nil
		}
		return err
	})
	return skipped, explain(err)
}

func read(dir *safepath.Dir, at, name string, left *int64, visit func(File) error) error {
	f, info, err := dir.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	if *left -= info.Size(); *left < 0 {
		return sandbox.Errorf(sandbox.Exhausted, "more than %s in all", sandbox.FormatBytes(maxBytes))
	}
	// The file may grow: read only its current size.
	return visit(File{Name: name, Size: info.Size(), Executable: info.Mode()&0o111 != 0, Content: io.LimitReader(f, info.Size())})
}

// Write writes all of r to a path and creates the directories above it. At the
// end, an atomic rename replaces an existing file, or a link itself. Write
// refuses tool files.
func (s *Directories) Write(name string, r io.Reader) error {
	dir, rest, err := s.findToWrite(name)
	if err != nil {
		return err
	}
	if rest == "." {
		return sandbox.Errorf(sandbox.Invalid, "%s is a directory", safepath.Show(name))
	}
	if info, err := dir.Lstat(rest); err == nil && info.IsDir() {
		return sandbox.Errorf(sandbox.Invalid, "%s is a directory", safepath.Show(name))
	}
	f, err := dir.Create(rest, dir)
	if err != nil {
		return explain(err)
	}
	n, err := io.Copy(f, io.LimitReader(r, maxBytes+1))
	if err == nil && n > maxBytes {
		err = sandbox.Errorf(sandbox.Exhausted, "more than %s", sandbox.FormatBytes(maxBytes))
	}
	if err != nil {
		return errors.Join(explain(err), f.Discard())
	}
	err = s.place(dir, []string{rest}, f.Commit)
	return explain(errors.Join(err, f.Discard()))
}

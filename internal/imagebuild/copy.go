package imagebuild

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A directory is the build context. The root prevents access outside it, even
// through symbolic links.
type directory struct {
	root   *os.Root
	files  fs.FS
	ignore *patternmatcher.PatternMatcher // nil excludes nothing
	always []string                       // files that .dockerignore cannot exclude
}

func openDirectory(name string) (*directory, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%w", err), "name a directory with a Dockerfile")
	}
	d := &directory{root: root, files: root.FS()}
	if d.ignore, err = d.readIgnore(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

func (d *directory) close() error { return d.root.Close() }

// read reads a file of at most most bytes.
func (d *directory) read(name string, most int64) ([]byte, error) {
	fi, err := d.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() { // opening a FIFO would block until it has a writer
		return nil, sandbox.Errorf(sandbox.Invalid, "%s is not a file", name)
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = sandbox.Errorf(sandbox.Invalid, "%s has more than %d bytes", name, most)
	}
	return data, err
}

// dockerfile reads the Dockerfile.
func (d *directory) dockerfile() ([]byte, error) {
	text, err := d.read("Dockerfile", maxDockerfile)
	if errors.Is(err, fs.ErrNotExist) {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%s has no Dockerfile", d.root.Name()), "name a directory with a Dockerfile")
	}
	return text, err
}

// Pack writes an archive of dir from which a container engine can build. It omits
// the files that .dockerignore excludes. The container engine reads the
// Dockerfile and .dockerignore itself, so the archive always has both.
func Pack(to io.Writer, dir string) error {
	d, err := openDirectory(dir)
	if err != nil {
		return err
	}
	defer d.close()
	if _, err := d.dockerfile(); err != nil {
		return err
	}
	d.always = []string{"Dockerfile", ".dockerignore"}
	return d.pack(to, []string{"."}, -1)
}

// readIgnore reads the patterns of .dockerignore.
func (d *directory) readIgnore() (*patternmatcher.PatternMatcher, error) {
	data, err := d.read(".dockerignore", maxDockerfile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(strings.NewReader(string(data)))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, ".dockerignore: %w", err)
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, ".dockerignore: %w", err)
	}
	return m, nil
}

func (d *directory) ignored(name string) (bool, error) {
	if d.ignore == nil || name == "." || slices.Contains(d.always, name) {
		return false, nil
	}
	return d.ignore.MatchesOrParentMatches(name)
}

// sources resolves the names of a COPY, which may be patterns.
func (d *directory) sources(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		clean := path.Clean(strings.TrimLeft(name, "/"))
		if strings.HasPrefix(name, "/") && clean == "" {
			clean = "."
		}
		if !fs.ValidPath(clean) {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s leads out of the directory", shorten(name)),
				"copy the files into the directory of the Dockerfile")
		}
		found := []string{clean}
		if strings.ContainsAny(clean, "*?[") {
			var err error
			if found, err = fs.Glob(d.files, clean); err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "%s: %w", shorten(name), err)
			}
		}
		n := len(all)
		left := false
		for _, f := range found {
			ignored, err := d.ignored(f)
			if err != nil {
				return nil, err
			}
			// A directory may contain files that an exception includes again.
			if left = ignored && !d.ignore.Exclusions(); !left {
				all = append(all, f)
			}
		}
		switch {
		case len(all) > n:
		case left:
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%s is excluded by .dockerignore", shorten(name)), "remove the pattern from that file")
		default:
			return nil, missingSource(name)
		}
	}
	return all, nil
}

func missingSource(name string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%s is not in the directory of the Dockerfile", shorten(name)),
		"write the path relative to that directory")
}

// pack writes an archive of sources: the contents of a directory, and any other
// file itself. mode, if not negative, replaces the mode of every file.
func (d *directory) pack(to io.Writer, sources []string, mode int64) error {
	w := tar.NewWriter(to)
	for _, s := range sources {
		fi, err := d.root.Stat(s) // follow a link that is named itself
		if errors.Is(err, fs.ErrNotExist) {
			return missingSource(s)
		}
		if err == nil && fi.IsDir() {
			if l, lerr := d.root.Lstat(s); lerr == nil && !l.IsDir() {
				return sandbox.Errorf(sandbox.Invalid, "%s is a link to a directory; name the directory itself", shorten(s))
			}
			err = d.packTree(w, s, mode)
		} else if err == nil {
			err = d.packFile(w, s, path.Base(s), fi, mode)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// packTree writes the contents of a directory.
func (d *directory) packTree(w *tar.Writer, dir string, mode int64) error {
	return fs.WalkDir(d.files, dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ignored, err := d.ignored(name)
		switch {
		case err != nil:
			return err
		case ignored && e.IsDir() && !d.ignore.Exclusions():
			return fs.SkipDir
		case ignored || name == dir:
			return nil
		}
		fi, err := d.root.Lstat(name)
		if err != nil {
			return err
		}
		as := name
		if dir != "." {
			as = strings.TrimPrefix(name, dir+"/")
		}
		return d.packFile(w, name, as, fi, mode)
	})
}

func (d *directory) packFile(w *tar.Writer, name, as string, fi fs.FileInfo, mode int64) error {
	h := &tar.Header{Name: as, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime(), Format: tar.FormatPAX}
	for bit, ours := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if fi.Mode()&bit != 0 {
			h.Mode |= ours
		}
	}
	if mode >= 0 {
		h.Mode = mode
	}
	switch {
	case fi.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		return w.WriteHeader(h)
	case fi.Mode().Type() == fs.ModeSymlink:
		target, err := d.root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return w.WriteHeader(h)
	case !fi.Mode().IsRegular():
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is not a file, a directory or a link", shorten(name)),
			"exclude it with .dockerignore")
	}
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Size = fi.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(w, f, h.Size); err != nil {
		return fmt.Errorf("read %s: %w", shorten(name), err)
	}
	return nil
}

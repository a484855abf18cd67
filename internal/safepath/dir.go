package safepath

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"time"
)

// A Dir is an open directory and everything below it.
type Dir struct {
	root *os.Root
	// uid and gid are the owner of new files, or -1 for this process's user.
	uid, gid int
	// noLinks prevents following links below it; see WithoutLinks.
	noLinks bool
}

// WithoutLinks returns a Dir whose methods that create and open directories, and
// that place files, follow no links. If a part of a name is a link, the error
// wraps [ErrType], even if the link was just created. It is for names whose parts
// the caller has checked. Reading does not change. The result shares d's handle,
// which d closes.
func (d *Dir) WithoutLinks() *Dir {
	plain := *d
	plain.noLinks = true
	return &plain
}

// ErrFollowsLinks is wrapped by errors about a kernel that does not give the
// guarantees of this package.
var ErrFollowsLinks = errors.New("the kernel follows links although it must not")

// OpenDir opens a directory of the host by a path that the caller trusts. The
// caller closes it.
func OpenDir(path string) (*Dir, error) {
	root, err := openPath(path)
	if err != nil {
		return nil, err
	}
	return newDir(root)
}

func newDir(root *os.Root) (*Dir, error) {
	fi, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	d := &Dir{root: root}
	d.uid, d.gid = ownerOf(fi)
	return d, nil
}

// Close closes the directory. Files opened from it stay open.
func (d *Dir) Close() error { return d.root.Close() }

// Sub opens a directory below d. The error wraps [ErrName] for a bad name. The
// caller closes the result.
func (d *Dir) Sub(name string) (*Dir, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	root, err := d.open(name)
	if err != nil {
		return nil, err
	}
	sub, err := newDir(root)
	if err != nil {
		return nil, err
	}
	sub.noLinks = d.noLinks
	return sub, nil
}

// open opens a directory below d by a clean name.
func (d *Dir) open(name string) (*os.Root, error) {
	if d.noLinks {
		return d.openPlain(name, false)
	}
	return openRoot(d.root, name)
}

// openPlain opens a directory below d by a clean name, and follows no link. With
// mkdir, it creates missing directories.
func (d *Dir) openPlain(name string, mkdir bool) (*os.Root, error) {
	root, err := openRoot(d.root, ".")
	if err != nil || name == "." {
		return root, err
	}
	for part := range strings.SplitSeq(name, "/") {
		sub, err := d.enter(root, part, mkdir)
		root.Close()
		if err != nil {
			return nil, fmt.Errorf("in %s: %w", Show(name), err)
		}
		root = sub
	}
	return root, nil
}

// enter opens a directory in another, and follows no link. With mkdir, it creates
// a missing directory.
func (d *Dir) enter(root *os.Root, part string, mkdir bool) (*os.Root, error) {
	fi, err := root.Lstat(part)
	if mkdir && errors.Is(err, fs.ErrNotExist) {
		err = root.Mkdir(part, 0o755)
		if err == nil && d.uid >= 0 {
			err = root.Lchown(part, d.uid, d.gid)
		}
		if err == nil || errors.Is(err, fs.ErrExist) { // another process may have made it
			fi, err = root.Lstat(part)
		}
	}
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%w: %s is a link or a file, and must be a directory", ErrType, Show(part))
	}
	sub, err := openRoot(root, part)
	if err != nil {
		return nil, err
	}
	// A link may have replaced the directory after Lstat.
	now, err := sub.Stat(".")
	if err == nil && !os.SameFile(fi, now) {
		err = fmt.Errorf("%w: %s was replaced", ErrType, Show(part))
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// openRoot opens a directory below another. The dot at the end makes os.Root open
// only a directory. Otherwise the open would block forever on a FIFO.
func openRoot(root *os.Root, name string) (*os.Root, error) {
	return root.OpenRoot(name + "/.")
}

// Open opens a regular file for reading. For any other file the error wraps
// [ErrType]. It never blocks, even on a FIFO without a writer. The caller closes
// the file.
func (d *Dir) Open(name string) (*os.File, fs.FileInfo, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, nil, err
	}
	fi, err := d.root.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := mustBeRegular(name, fi); err != nil {
		return nil, nil, err
	}
	// The file may have been replaced after Stat.
	f, err := d.root.OpenFile(name, os.O_RDONLY|openNow, 0)
	if err != nil {
		return nil, nil, err
	}
	if fi, err = f.Stat(); err == nil {
		err = mustBeRegular(name, fi)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, fi, nil
}

func mustBeRegular(name string, fi fs.FileInfo) error {
	if fi.Mode().IsRegular() {
		return nil
	}
	what := "a special file"
	if fi.IsDir() {
		what = "a directory"
	}
	return fmt.Errorf("%w: %s is %s", ErrType, Show(name), what)
}

// Lstat describes the file with that name, and does not follow a link at its end.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	return d.root.Lstat(name)
}

// MkdirAll creates a directory and the directories above it. Existing directories
// do not change.
func (d *Dir) MkdirAll(name string) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	if d.noLinks {
		root, err := d.openPlain(name, true)
		if err != nil {
			return err
		}
		return root.Close()
	}
	return d.mkdirAll(name, nil)
}

// mkdirAll is MkdirAll for a clean name. It calls making, unless nil, before it
// creates a directory, and stops if that fails. Its work grows linearly with the
// depth: each directory is created in its open parent.
func (d *Dir) mkdirAll(name string, making func() error) error {
	if name == "." {
		return nil
	}
	fi, err := d.root.Stat(name)
	switch {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s is not a directory", ErrType, Show(name))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	there, missing := d.firstMissing(name)
	parent, err := openRoot(d.root, there)
	if err != nil {
		return err
	}
	for {
		part, rest, more := strings.Cut(missing, "/")
		err := d.mkdirIn(parent, part, making)
		if err != nil || !more {
			return errors.Join(err, parent.Close())
		}
		sub, err := openRoot(parent, part)
		parent.Close()
		if err != nil {
			return err
		}
		parent, missing = sub, rest
	}
}

// firstMissing splits the name of a missing directory into the directory that
// exists and the rest.
func (d *Dir) firstMissing(name string) (there, missing string) {
	parts := strings.Split(name, "/")
	n := sort.Search(len(parts)-1, func(i int) bool {
		_, err := d.root.Stat(path.Join(parts[:i+1]...))
		return errors.Is(err, fs.ErrNotExist)
	})
	return path.Join(".", path.Join(parts[:n]...)), path.Join(parts[n:]...)
}

// mkdirIn creates a directory of d in its parent.
func (d *Dir) mkdirIn(parent *os.Root, part string, making func() error) error {
	if making != nil {
		if err := making(); err != nil {
			return err
		}
	}
	if err := parent.Mkdir(part, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // a concurrent creation; if it is not a directory, the next step fails
		}
		return err
	}
	if d.uid < 0 {
		return nil
	}
	return parent.Lchown(part, d.uid, d.gid)
}

// own gives a new file to the owner of d.
func (d *Dir) own(name string) error {
	if d.uid < 0 {
		return nil
	}
	return d.root.Lchown(name, d.uid, d.gid)
}

// RemoveAll removes a file, or a directory with everything in it, at any depth. A
// missing name is not an error. While other processes add files, it retries for a
// while.
func (d *Dir) RemoveAll(name string) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	if name == "." {
		return d.Empty()
	}
	parent, err := openRoot(d.root, path.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	return removeTree(parent, path.Base(name))
}

// Empty removes everything in d.
func (d *Dir) Empty() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(1000)
		for _, name := range names {
			if err := removeTree(d.root, name); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A Pending is a file that is being written. No other process sees it before
// Commit. Discard removes it.
type Pending struct {
	*os.File
	to      *Dir
	name    string
	staging *Dir
	temp    string
}

// Create begins a file that Commit moves to name. It is written in staging, a
// directory of the same file system that only this process can enter. Commit
// creates the directories above name. The caller ends the Pending with Commit or
// Discard.
func (d *Dir) Create(name string, staging *Dir) (*Pending, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	if name == "." {
		return nil, fmt.Errorf("%w: %s names the directory itself", ErrName, Show(name))
	}
	p := &Pending{to: d, name: name, staging: staging, temp: tempName()}
	p.File, err = staging.root.OpenFile(p.temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if d.uid >= 0 {
		if err := p.Chown(d.uid, d.gid); err != nil {
			return nil, errors.Join(err, p.Discard())
		}
	}
	return p, nil
}

func tempName() string { return "new-" + rand.Text() }

// Commit closes the file and moves it to its name by an atomic rename. It
// replaces a file or a link of that name. For a directory of that name, the error
// wraps [ErrType]. After an error the file is removed.
func (p *Pending) Commit() error {
	err := p.File.Close()
	if err == nil {
		err = p.to.place(p.staging, p.temp, p.name)
	}
	if err != nil {
		_ = p.staging.root.Remove(p.temp)
	}
	return err
}

// Discard closes and removes the file. After Commit it does nothing.
func (p *Pending) Discard() error {
	_ = p.File.Close()
	err := p.staging.root.Remove(p.temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// place moves a file from staging to name.
func (d *Dir) place(staging *Dir, temp, name string) error {
	if err := d.MkdirAll(path.Dir(name)); err != nil {
		return err
	}
	parent, err := d.open(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	err = moveBetween(staging.root, temp, parent, path.Base(name))
	if err == nil {
		return nil
	}
	if fi, serr := parent.Lstat(path.Base(name)); serr == nil && fi.IsDir() {
		return fmt.Errorf("%w: %s is a directory", ErrType, Show(name))
	}
	return err
}

// An Entry is a file that Walk found.
type Entry struct {
	Path string
	Mode fs.FileMode
	// Size is the file's length, and Allocated its space on disk, which is
	// smaller for a file with holes. For a file with several names, only the
	// first has Allocated.
	Size, Allocated int64
	Modified        time.Time
	// Changed is the time of the last change to content or attributes, which
	// programs cannot set. File identifies the file, so that a later file of the
	// same name differs. Both are zero where the system does not provide them.
	Changed time.Time
	File    uint64
}

// Readlink returns the target of a link, without following it.
func (d *Dir) Readlink(name string) (string, error) {
	name, err := Clean(name)
	if err != nil {
		return "", err
	}
	return d.root.Readlink(name)
}

// Symlink creates a link to target, and replaces a file or link of that name. The
// caller must check that it may lead there, and that no part of name becomes a
// link meanwhile.
func (d *Dir) Symlink(target, name string) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	if err := d.MkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if fi, err := d.root.Lstat(name); err == nil && fi.IsDir() {
		return fmt.Errorf("%w: %s is a directory", ErrType, Show(name))
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.root.Symlink(target, name); err != nil {
		return err
	}
	return d.own(name)
}

// Staging creates a directory in d for [Dir.Create], which only this process's
// user can enter. remove closes and removes it, with everything in it.
func (d *Dir) Staging() (staging *Dir, remove func(), err error) {
	name := ".glovebox-" + rand.Text()
	if err := d.root.Mkdir(name, 0o700); err != nil {
		return nil, nil, err
	}
	staging, err = d.Sub(name)
	if err != nil {
		return nil, nil, errors.Join(err, d.root.Remove(name))
	}
	return staging, func() {
		staging.Close()
		_ = d.RemoveAll(name) // a temporary directory: its remains do no harm
	}, nil
}

// CopySparse writes all of r to the file, with holes for runs of zeros. It
// returns the number of bytes that it read.
func (p *Pending) CopySparse(ctx context.Context, r io.Reader) (int64, error) {
	in := &countingReader{r: r}
	err := copySparse(ctx, p.File, in)
	return in.n, err
}

package results

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Dir is the directory of --results.
type Dir struct {
	name string
	root *os.Root
	link func(from, to string) error // makes a hard link in root
	last map[string]int              // number of the last file, by the beginning of its name
	made []string                    // the directories that Open made, the innermost first
}

// Open opens or makes the directory of --results, or returns nil for "". It makes
// the directory before the run, so that an error does not lose a result. The caller
// closes it.
func Open(name string) (*Dir, error) {
	if name == "" {
		return nil, nil
	}
	d := &Dir{name: name, last: map[string]int{}}
	for dir := filepath.Clean(name); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		d.made = append(d.made, dir)
	}
	err := os.MkdirAll(name, 0o755)
	if err == nil {
		d.root, err = os.OpenRoot(name)
	}
	if err != nil {
		d.removeEmpty()
		return nil, err
	}
	d.link = d.root.Link
	return d, nil
}

// Close closes the directory, if d is not nil. The files stay. A directory that
// Open made and that has no file is removed.
func (d *Dir) Close() {
	if d != nil {
		d.root.Close() // it was only read, so there is nothing to lose
		d.removeEmpty()
	}
}

// removeEmpty removes the directories that Open made, up to the first with a file.
func (d *Dir) removeEmpty() {
	for _, dir := range d.made {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// maxNumber bounds the search for a free file name.
const maxNumber = 100_000

// Save writes a result to a new file, whole or not at all, and returns the file's
// path. It never changes a file that exists.
func (d *Dir) Save(f File) (path string, err error) {
	temporary := ".glovebox-" + rand.Text()
	if err := d.write(temporary, f.Data); err != nil {
		return "", err
	}
	defer func() {
		if e := d.root.Remove(temporary); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	kind := map[bool]string{true: "plot", false: "result"}[f.isPlot()]
	for n := d.last[kind] + 1; n <= maxNumber; n++ {
		name := fmt.Sprintf("%s-%d.%s", kind, n, f.Extension)
		err := d.claim(temporary, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "save result: %w", err)
		}
		d.last[kind] = n
		return filepath.Join(d.name, name), nil
	}
	return "", sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "save result: %s has %d of them", d.name, maxNumber),
		"name another directory with --results")
}

func (d *Dir) write(name string, data []byte) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "save result: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "save result: %w", errors.Join(err, d.root.Remove(name)))
	}
	return nil
}

// claim gives a file a name that no file has, else the error is fs.ErrExist.
func (d *Dir) claim(from, to string) error {
	err := d.link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The file system has no hard links. The name is taken by an empty file
	// first, which the rename replaces.
	if err := d.write(to, nil); err != nil {
		return err
	}
	if err := d.root.Rename(from, to); err != nil {
		return errors.Join(err, d.root.Remove(to))
	}
	return nil
}

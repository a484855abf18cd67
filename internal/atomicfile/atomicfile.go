// Package atomicfile writes small files whole or not at all: a reader, and a
// process that starts after a crash, finds the old content or the new, and never
// a part. Every package may import it. It keeps no state.
//
// Content is written to a temporary file in the same directory, whose name begins
// with [TempPrefix]. The file is then renamed or linked into place. A process that
// is killed in between leaves the temporary file.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix begins the names of temporary files.
const TempPrefix = ".new-"

// Replace writes data to a file with the permissions mode, in place of the file
// that is there. If it fails the old file stays. The content survives the end of
// the process, and may not survive a loss of power; see [ReplaceDurably].
func Replace(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, false)
}

// ReplaceDurably is [Replace] whose content is on the disk before it appears, so
// that a loss of power leaves no empty file. It takes as long as the disk does.
func ReplaceDurably(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, true)
}

func replace(path string, data []byte, mode fs.FileMode, sync bool) error {
	temp, err := write(path, data, mode, sync)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// Once writes data to a file with the permissions mode unless the file is there
// already, and returns what the file holds then. Of several processes that call it
// at the same time, one writes, and all get the same content.
func Once(path string, data []byte, mode fs.FileMode) ([]byte, error) {
	old, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return old, err
	}
	temp, err := write(path, data, mode, false)
	if err != nil {
		return nil, err
	}
	// A link, unlike a rename, does not replace a file.
	err = os.Link(temp, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err := errors.Join(err, os.Remove(temp)); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// write makes a temporary file beside path, and returns its path.
func write(path string, data []byte, mode fs.FileMode, sync bool) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), TempPrefix+"*") // of mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil && mode != 0o600 {
		// Windows has no such permissions.
		if err = f.Chmod(mode); errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

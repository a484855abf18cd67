//go:build unix

package sealed

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LoadKey reads the key in a file, which only its owner may read. If there is no file
// and make is set, it makes one with a random key. Otherwise the error wraps
// [fs.ErrNotExist]. Other errors are of kind Invalid, with a hint.
func LoadKey(path string, make bool) (Key, error) {
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) || !make {
		return key, err
	}
	if err := makeKey(path); err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "make the key file: %w", err), "make its directory, or choose another file")
	}
	return readKey(path)
}

func readKey(path string) (Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "read the key file: %w", err), "let only the user of the server read the file")
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the key file %s is no regular file", path), "name a file of %d random bytes, or a path without a file", KeySize)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "others may use the key file %s (mode %04o)", path, fi.Mode().Perm()), "chmod 600 %s", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, KeySize+1))
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "read the key file: %w", err), "restore it from a backup")
	}
	if len(data) != KeySize {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the key file %s has %d bytes, and a key has %d", path, fi.Size(), KeySize), "restore it from a backup; a new key opens no earlier state")
	}
	return data, nil
}

// makeKey writes a random key to a file that does not exist. If another process is
// faster, its key stays.
func makeKey(path string) (err error) {
	key := make([]byte, KeySize)
	rand.Read(key)                                       // never fails
	f, err := os.CreateTemp(filepath.Dir(path), ".key-") // for its owner only
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package builds

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An ID names a build by the hashes of its executables: SHA-256, in hexadecimal.
type ID struct {
	Program string `json:"program"`
	Guest   string `json:"guest"`
}

// name is the directory of a build.
func (id ID) name() string { return id.Program + "-" + id.Guest }

// A Set is a directory of builds.
type Set struct{ Dir string }

// The executables in the directory of a build.
const (
	programName = "glovebox"
	guestName   = "glovebox-guest"
)

// lockName is locked by Keep while a state is saved, and by Sweep. While a build is copied,
// the directory itself is locked, so that saves at the same time need the disk space of
// one copy.
const lockName = ".lock"

// newPrefix begins the names of directories that are being written.
const newPrefix = ".new-"

// Keep makes sure that the set has a build, by copies of its executables. No sweep
// removes it until the caller calls done: by then, a state should need it.
func (s Set) Keep(id ID, program, guest string) (done func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := s.lock(unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	done = func() { lock.Close() }
	if err := s.writeOnce(id, program, guest); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// writeOnce copies the executables of a build to the set, unless they are there.
func (s Set) writeOnce(id ID, program, guest string) error {
	dir := filepath.Join(s.Dir, id.name())
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	set, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	defer set.Close()
	if err := flock(set, unix.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil // by the earlier holder of the lock
	}
	return s.write(dir, id, program, guest)
}

// Hold keeps all builds of the set until the file is closed, if guest is of one of them:
// boxes of that guest may be saved again, and need its file. Otherwise the file is nil.
func (s Set) Hold(guest string) (*os.File, error) {
	if filepath.Dir(filepath.Dir(guest)) != filepath.Clean(s.Dir) {
		return nil, nil
	}
	return s.lock(unix.LOCK_SH)
}

// write copies the executables of a build to dir.
func (s Set) write(dir string, id ID, program, guest string) (err error) {
	fresh := filepath.Join(s.Dir, newPrefix+rand.Text())
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	for _, file := range []struct{ name, from, sum string }{{programName, program, id.Program}, {guestName, guest, id.Guest}} {
		if file.name == guestName && id.Guest == id.Program {
			err = os.Link(filepath.Join(fresh, programName), filepath.Join(fresh, guestName))
		} else {
			err = copyFile(filepath.Join(fresh, file.name), file.from, file.sum)
		}
		if err != nil {
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				return sandbox.NoSpace(err)
			}
			return err
		}
	}
	if err := syncDir(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // a supervisor of an earlier version, which has no such lock, wrote the same
	}
	return syncDir(s.Dir)
}

// copyFile copies an executable. The sentries of boxes, which have other users, execute
// it, so everybody may.
func copyFile(to, from, sum string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // which shares the blocks, on some file systems
	if err := errors.Join(err, out.Chmod(0o555), out.Sync(), out.Close()); err != nil {
		return err
	}
	if got, err := hash(to); err != nil || got != sum {
		return errors.Join(sandbox.Errorf(sandbox.Unavailable, "%s changed while the server runs", from), err)
	}
	return nil
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s Set) lock(how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, how); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// flock locks an open file until it is closed.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

// Find returns the executables of a build, after a check that they are whole.
func (s Set) Find(id ID) (program, guest string, err error) {
	dir := filepath.Join(s.Dir, id.name())
	program, guest = filepath.Join(dir, programName), filepath.Join(dir, guestName)
	for path, sum := range map[string]string{program: id.Program, guest: id.Guest} {
		got, err := hash(path)
		if err == nil && got != sum {
			err = errors.New(path + " is damaged")
		}
		if err != nil {
			return "", "", sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is of another build of Glovebox, which is not kept here: %w", err),
				"run the build that saved it, which can wake it")
		}
	}
	return program, guest, nil
}

// List returns the builds of the set.
func (s Set) List() ([]driver.Build, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []driver.Build
	for _, e := range entries {
		program, _, ok := strings.Cut(e.Name(), "-")
		if strings.HasPrefix(e.Name(), ".") || !ok {
			continue
		}
		b := driver.Build{Hash: program}
		var seen os.FileInfo
		for _, name := range []string{programName, guestName} {
			fi, err := os.Lstat(filepath.Join(s.Dir, e.Name(), name))
			if err == nil && (seen == nil || !os.SameFile(seen, fi)) {
				b.Bytes += fi.Size()
				seen = fi
			}
		}
		list = append(list, b)
	}
	return list, nil
}

// Sweep removes the builds that no state needs. needed returns those that one does. If
// a state is being saved, another sweep removes them.
func (s Set) Sweep(needed func() (map[ID]bool, error)) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock, err := s.lock(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	ids, err := needed()
	if err != nil {
		return err
	}
	keep := map[string]bool{lockName: true}
	for id := range ids {
		keep[id.name()] = true
	}
	var errs []error
	for _, e := range entries {
		if !keep[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

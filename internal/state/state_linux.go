package state

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// The files beside the place of a state, for the time of a save and of a restore: the
// directory that is written or was taken, and a file that its user has locked. The base
// may be beside it, too.
const (
	newSuffix  = ".new"
	usedSuffix = ".used"
	lockSuffix = ".lock"
)

// A Writer writes a state. The caller ends it by Discard, or by Close after Commit.
// Until then the state is locked.
type Writer struct {
	dir   string // the place of the state
	key   sealed.Key
	lock  *os.File
	names []string
	files []*os.File
	rooms []int64
	bytes int64 // of the complete state, on the disk
}

// New begins to write the state at dir. The remains of an interrupted save are
// removed. If key is not nil, the state is encrypted with it: its files are in memory
// until Commit, and never on the disk as they were written.
func New(dir string, key sealed.Key) (*Writer, error) {
	lock, err := lockAt(dir)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir + newSuffix); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := os.Mkdir(dir+newSuffix, 0o700); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Writer{dir: dir, key: key, lock: lock}, nil
}

// Create makes a file of the state, with room on the disk for that many bytes. A
// writer that ignores a full disk can thus write them all. The Writer closes the
// file.
func (w *Writer) Create(name string, room int64) (*os.File, error) {
	if w.key != nil {
		f, err := inMemory(room)
		if err != nil {
			return nil, err
		}
		w.names, w.files, w.rooms = append(w.names, name), append(w.files, f), append(w.rooms, room)
		return f, nil
	}
	f, err := os.OpenFile(filepath.Join(w.dir+newSuffix, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w.names, w.files, w.rooms = append(w.names, name), append(w.files, f), append(w.rooms, room)
	for {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(room, 1))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, sandbox.NoSpace(fmt.Errorf("reserve %s: %w", sandbox.FormatBytes(room), err))
	}
	if err != nil {
		return nil, fmt.Errorf("reserve %s on the disk: %w", sandbox.FormatBytes(room), err)
	}
	return f, nil
}

// Bytes returns the length of the files on the disk, after Commit.
func (w *Writer) Bytes() int64 { return w.bytes }

// Commit completes m by the files and puts the state in its place. It returns nil
// when a loss of power can no longer undo that. After an error there is no state.
func (w *Writer) Commit(m Manifest) error {
	m.Format, m.Reads, m.Files = Format, FormatBased, map[string]Sum{}
	if w.key != nil {
		m.Format, m.ID, m.Packed = FormatPacked, rand.Text(), map[string]Sum{}
	}
	for i, f := range w.files {
		if w.key != nil {
			var err error
			if m.Files[w.names[i]], m.Packed[w.names[i]], err = w.seal(f, &m, w.names[i]); err != nil {
				return err
			}
			continue
		}
		sum, err := sumOf(f)
		if err != nil {
			return err
		}
		m.Files[w.names[i]] = sum
		// Give back the room that was not needed. Ext4 does it for a truncation to the
		// same length, and others for a hole.
		if err := f.Truncate(sum.Bytes); err != nil {
			return err
		}
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, sum.Bytes, max(w.rooms[i], 1))
		if err := f.Sync(); err != nil {
			return err
		}
	}
	w.bytes = m.Bytes()
	written := &m
	if w.key != nil {
		var err error
		if written, err = m.seal(w.key); err != nil {
			return err
		}
	}
	if err := writeManifest(w.dir+newSuffix, written); err != nil {
		return err
	}
	if err := os.Rename(w.dir+newSuffix, w.dir); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(w.dir)); err != nil {
		return errors.Join(err, os.Rename(w.dir, w.dir+newSuffix))
	}
	return nil
}

// writeManifest completes the directory of a state, and waits until it is on the disk.
func writeManifest(dir string, m *Manifest) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, manifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(dir)
}

// Discard removes what was written.
func (w *Writer) Discard() error {
	err := os.RemoveAll(w.dir + newSuffix)
	w.Close()
	return err
}

// Close closes the files, and unlocks the state.
func (w *Writer) Close() {
	for _, f := range w.files {
		f.Close()
	}
	w.lock.Close()
}

// Exists reports whether there is a state at dir.
func Exists(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir()
}

// Interrupted reports whether a process died while it saved the state at dir, or
// while it made a box from it. What it left of the box must not run on.
func Interrupted(dir string) bool {
	if !Exists(dir+newSuffix) && !Exists(dir+usedSuffix) {
		return false
	}
	lock, err := lockAt(dir)
	if err != nil {
		return false // its user lives
	}
	defer lock.Close()
	return Exists(dir+newSuffix) || Exists(dir+usedSuffix)
}

// Locked reports whether a process saves the state at dir, or makes a box from it.
func Locked(dir string) bool {
	lock, err := lockAt(dir)
	if err == nil {
		lock.Close()
	}
	return errors.Is(err, sandbox.Conflict)
}

// A State is a saved state that is open. The caller closes it.
type State struct {
	Manifest *Manifest
	dir      string
	key      sealed.Key          // nil if the state is not encrypted
	files    map[string]*os.File // as they are on the disk
	unpacked map[string]*os.File // the contents of packed files, for which Files was called
	base     *os.File            // nil unless a packed file needs it
	lock     *os.File            // while it is in use
}

// Open opens the state of a box at dir. It checks the manifest, and the files'
// lengths but not their content. The key is for an encrypted state, and may be nil.
func Open(dir, box string, key sealed.Key) (*State, error) {
	return reading(dir, func(place *os.File) (_ *State, err error) {
		s := &State{dir: dir, files: map[string]*os.File{}, unpacked: map[string]*os.File{}}
		defer func() {
			if err != nil {
				s.Close()
			}
		}()
		if s.Manifest, err = readManifest(place); err != nil {
			return nil, err
		}
		if s.Manifest.Box != box {
			return nil, damaged("it is of another sandbox")
		}
		if s.Manifest.Sealed != nil {
			s.key = key
		}
		if s.Manifest, err = s.Manifest.open(key); err != nil {
			return nil, err
		}
		for name, sum := range s.Manifest.stored() {
			f, err := openIn(place, name)
			if err != nil {
				return nil, damaged("%w", err)
			}
			s.files[name] = f
			if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() != sum.Bytes {
				return nil, damaged("%s does not have %d bytes", name, sum.Bytes)
			}
		}
		if s.Manifest.Based == "" {
			return s, nil
		}
		if s.base, err = openBase(dir); err != nil {
			return nil, err
		}
		if s.base == nil {
			return nil, damaged("%s is missing, which has pages of it", dir+baseSuffix)
		}
		return s, nil
	})
}

// reading calls f with the directory of a state. A [Packer] can replace the directory
// meanwhile; then it calls f again.
func reading[T any](dir string, f func(place *os.File) (T, error)) (T, error) {
	for {
		var none T
		place, err := os.Open(dir)
		if err != nil {
			return none, damaged("%w", err)
		}
		result, err := f(place)
		replaced := err != nil && Exists(dir) && !isAt(place, dir)
		place.Close()
		if !replaced {
			return result, err
		}
	}
}

// isAt reports whether an open directory is the one at a path.
func isAt(place *os.File, dir string) bool {
	opened, err := place.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(dir)
	return err == nil && os.SameFile(opened, there)
}

// openIn opens a file in a directory, which must be no link.
func openIn(place *os.File, name string) (*os.File, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrInvalid}
	}
	fd, err := unix.Openat(int(place.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(place.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(place.Name(), name)), nil
}

// readManifest reads the manifest of a state and checks that it is whole.
func readManifest(place *os.File) (*Manifest, error) {
	f, err := openIn(place, manifestName)
	if err != nil {
		return nil, damaged("%w", err)
	}
	defer f.Close()
	return decode(f)
}

// BytesAt returns the length of the files on the disk, and the key, of the state of a
// box at dir. It opens no encrypted state.
func BytesAt(dir, box string) (int64, Key, error) {
	m, err := reading(dir, readManifest)
	if err == nil && m.Box != box {
		err = damaged("it is of another sandbox")
	}
	if err != nil {
		return 0, Key{}, err
	}
	return m.Bytes(), m.Key, nil
}

// KeyAt returns the key of the state at dir.
func KeyAt(dir string) (Key, error) {
	m, err := reading(dir, readManifest)
	if err != nil {
		return Key{}, err
	}
	return m.Key, nil
}

// Verify reads all files, and returns an error if one is not as it was written. It
// writes the contents of packed files into what Files returned.
func (s *State) Verify() error {
	for name, f := range s.files {
		var err error
		if s.Manifest.Packed != nil {
			err = s.unpack(name, f)
		} else if sum, serr := sumOf(f); serr != nil || sum != s.Manifest.Files[name] {
			err = damaged("%s has another checksum (%v)", name, serr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Files returns files with the contents of those names, from their beginning. The
// State closes them. The contents of a packed state are there when Verify returns.
func (s *State) Files(names ...string) ([]*os.File, error) {
	var files []*os.File
	for _, name := range names {
		f := s.files[name]
		if f == nil {
			return nil, damaged("it has no %s", name)
		}
		if s.Manifest.Packed != nil {
			var err error
			if s.key != nil {
				f, err = inMemory(s.Manifest.Files[name].Bytes)
			} else {
				f, err = unnamedIn(filepath.Dir(s.dir))
			}
			if err != nil {
				return nil, err
			}
			s.unpacked[name] = f
		}
		files = append(files, f)
	}
	return files, nil
}

// unnamedIn makes a file without a name on the disk of a directory.
func unnamedIn(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "unnamed")), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, &os.PathError{Op: "make unnamed file in", Path: dir, Err: err}
	}
	f, err := os.CreateTemp(dir, ".unpacked-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Bytes returns the length of the files on the disk.
func (s *State) Bytes() int64 { return s.Manifest.Bytes() }

// Use takes the state from its place before a box is made from it, so that no crash
// can make two. The caller then calls Remove, or PutBack if nothing of the box has
// run. A [Packer] that works on the state gives up.
func (s *State) Use() error {
	lock, err := lockAt(s.dir)
	if err != nil {
		return err
	}
	s.lock = lock
	place, err := hold(s.dir)
	if err != nil {
		return err
	}
	defer place.Close()
	if err := os.Rename(s.dir, s.dir+usedSuffix); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.dir))
}

// hold locks the directory of a state, so that no [Packer] replaces it until the caller
// closes the file. A packer has this lock only while it replaces the directory.
func hold(dir string) (*os.File, error) {
	for {
		place, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := flock(place, unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, place.Close())
		}
		if isAt(place, dir) || !Exists(dir) {
			return place, nil
		}
		place.Close()
	}
}

// flock locks a file as unix.Flock does, also if a signal interrupts that.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

// RemoveAll removes the directory of a box, with its state in a directory below it. A
// [Packer] that works on the state gives up.
func RemoveAll(boxDir, dir string) error {
	place, err := hold(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil {
		defer place.Close()
		// Files are removed one after another, and a packer would find a part of the
		// state. The rename fails if Use was interrupted: then dir is removed as it is.
		_ = os.Rename(dir, dir+usedSuffix)
	}
	return os.RemoveAll(boxDir)
}

// PutBack undoes Use.
func (s *State) PutBack() error { return os.Rename(s.dir+usedSuffix, s.dir) }

// Remove removes a state after Use.
func (s *State) Remove() error { return os.RemoveAll(s.dir + usedSuffix) }

// Close closes the files.
func (s *State) Close() {
	for _, f := range s.files {
		f.Close()
	}
	for _, f := range s.unpacked {
		f.Close()
	}
	if s.base != nil {
		s.base.Close()
	}
	if s.lock != nil {
		s.lock.Close()
	}
}

// lockAt locks the state at dir, until the process ends or closes the file. The error
// is of kind Conflict if it is locked.
func lockAt(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = sandbox.Errorf(sandbox.Conflict, "the sandbox is being saved or woken")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// KeysAt returns the keys of the states that there are at dir: one, or none. A state
// counts that is being used, because it may be put back.
func KeysAt(dir string) ([]Key, error) {
	for _, path := range []string{dir, dir + usedSuffix, dir} { // it may move meanwhile
		if !Exists(path) {
			continue
		}
		if k, err := KeyAt(path); err == nil {
			return []Key{k}, nil
		} else if Exists(path) {
			return nil, err
		}
	}
	return nil, nil
}

package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The files beside the place of a state, for the time of a save and of a restore: the
// directory that is written or was taken, and a file that its user has locked.
const (
	newSuffix  = ".new"
	usedSuffix = ".used"
	lockSuffix = ".lock"
)

// A Writer writes a state. The caller ends it by Discard, or by Close after Commit.
// Until then the state is locked.
type Writer struct {
	dir   string // the place of the state
	lock  *os.File
	names []string
	files []*os.File
	rooms []int64
}

// New begins to write the state at dir. The remains of an interrupted save are
// removed.
func New(dir string) (*Writer, error) {
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
	return &Writer{dir: dir, lock: lock}, nil
}

// Create makes a file of the state, with room on the disk for that many bytes. A
// writer that ignores a full disk can thus write them all. The Writer closes the
// file.
func (w *Writer) Create(name string, room int64) (*os.File, error) {
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

// Bytes returns the length of the files so far.
func (w *Writer) Bytes() (total int64, err error) {
	for _, f := range w.files {
		fi, err := f.Stat()
		if err != nil {
			return 0, err
		}
		total += fi.Size()
	}
	return total, nil
}

// Commit completes m by the files and puts the state in its place. It returns nil
// when a loss of power can no longer undo that. After an error there is no state.
func (w *Writer) Commit(m Manifest) error {
	m.Format, m.Files = Format, map[string]Sum{}
	for i, f := range w.files {
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
	data, err := m.encode()
	if err != nil {
		return err
	}
	manifest, err := os.OpenFile(filepath.Join(w.dir+newSuffix, manifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = manifest.Write(data)
	if err := errors.Join(err, manifest.Sync(), manifest.Close()); err != nil {
		return err
	}
	if err := syncDir(w.dir + newSuffix); err != nil {
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
	files    map[string]*os.File
	lock     *os.File // while it is in use
}

// Open opens the state of a box at dir. It checks the manifest, and the files'
// lengths but not their content.
func Open(dir, box string) (_ *State, err error) {
	s := &State{dir: dir, files: map[string]*os.File{}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Manifest, err = readManifest(dir); err != nil {
		return nil, err
	}
	if s.Manifest.Box != box {
		return nil, damaged("it is of another sandbox")
	}
	for name, sum := range s.Manifest.Files {
		if name != filepath.Base(name) {
			return nil, damaged("its manifest names a file %q", name)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, damaged("%w", err)
		}
		s.files[name] = f
		if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() != sum.Bytes {
			return nil, damaged("%s does not have %d bytes", name, sum.Bytes)
		}
	}
	return s, nil
}

// Verify reads all files, and returns an error if one is not as it was written.
func (s *State) Verify() error {
	for name, f := range s.files {
		if sum, err := sumOf(f); err != nil || sum != s.Manifest.Files[name] {
			return damaged("%s has another checksum (%v)", name, err)
		}
	}
	return nil
}

// Files returns the files of those names, from their beginning. The State closes
// them.
func (s *State) Files(names ...string) ([]*os.File, error) {
	var files []*os.File
	for _, name := range names {
		f := s.files[name]
		if f == nil {
			return nil, damaged("it has no %s", name)
		}
		files = append(files, f)
	}
	return files, nil
}

// Bytes returns the length of the files.
func (s *State) Bytes() (total int64) {
	for _, sum := range s.Manifest.Files {
		total += sum.Bytes
	}
	return total
}

// Use takes the state from its place before a box is made from it, so that no crash
// can make two. The caller then calls Remove, or PutBack if nothing of the box has
// run.
func (s *State) Use() error {
	lock, err := lockAt(s.dir)
	if err != nil {
		return err
	}
	s.lock = lock
	if err := os.Rename(s.dir, s.dir+usedSuffix); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.dir))
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
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
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

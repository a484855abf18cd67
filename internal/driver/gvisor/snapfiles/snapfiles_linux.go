package snapfiles

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

const (
	manifestName = "files.json"
	archiveName  = "files.tar.zst"
)

// format is the version of the files of a snapshot.
const format = 1

// maxMemory bounds the window of the decompression.
const maxMemory = 64 << 20

// A Keeper keeps snapshots in a directory.
type Keeper struct {
	Dir string
	// Key opens encrypted snapshots; nil opens none. Encrypt encrypts further ones with it.
	Key     sealed.Key
	Encrypt bool
}

// A Manifest describes the box of a snapshot.
type Manifest struct {
	Root      string `json:"root,omitempty"` // the root file system; "" for the host's
	Workspace bool   `json:"workspace"`
}

// A stored manifest also describes the archive.
type stored struct {
	Manifest
	Format int   `json:"format"`
	Bytes  int64 `json:"bytes"` // of the archive, on the disk
	// ID is random. An encrypted archive opens only with the ID in its manifest. KeyID is
	// the identifier of its key; "" if it is not encrypted.
	ID    string `json:"id"`
	KeyID string `json:"key_id,omitempty"`
}

// CheckFits returns an error of kind Unavailable if a box of a spec, whose root file system
// is root, cannot have the files.
func (m Manifest) CheckFits(spec *driver.Spec, root string) error {
	switch {
	case m.Root != root:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot does not fit: it is of another image"),
			"load the image again that its sandbox was made from, or take another snapshot")
	case m.Workspace != (spec.Workspace != ""):
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot does not fit: its sandbox differs in having a workspace"),
			"give the new sandbox a workspace if the other had one")
	}
	return nil
}

// Has reports whether id is a complete snapshot of files.
func (k *Keeper) Has(id string) bool {
	_, err := os.Lstat(filepath.Join(k.Dir, id, manifestName))
	return sandbox.ValidID(id) && err == nil
}

// Take keeps the files of a box as the snapshot id. The archive that pack returns has at
// most limit bytes. Take returns the length of the files on the disk. When it has returned
// without an error, the snapshot outlives a loss of power. After an error there is none.
func (k *Keeper) Take(id string, m Manifest, limit int64, pack func() (io.ReadCloser, error)) (_ int64, err error) {
	if !sandbox.ValidID(id) {
		return 0, sandbox.Errorf(sandbox.Invalid, "%q is not the identifier of a snapshot", id)
	}
	dir := filepath.Join(k.Dir, id)
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return 0, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return 0, sandbox.Errorf(sandbox.Conflict, "a snapshot of that name exists")
		}
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(noSpace(err), os.RemoveAll(dir))
		}
	}()
	s := stored{Manifest: m, Format: format, ID: rand.Text()}
	if k.Encrypt {
		if s.KeyID, err = k.Key.ID(); err != nil {
			return 0, err
		}
	}
	files, err := pack()
	if err != nil {
		return 0, err
	}
	defer files.Close()
	if s.Bytes, err = k.write(filepath.Join(dir, archiveName), id, &s, files, limit); err != nil {
		return 0, err
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.Replace(filepath.Join(dir, manifestName), data, 0o600)
	}
	if err == nil {
		err = syncDir(k.Dir)
	}
	return s.Bytes + int64(len(data)), err
}

// write writes the archive, and returns its length.
func (k *Keeper) write(name, id string, s *stored, files io.Reader, limit int64) (int64, error) {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	to := io.WriteCloser(nopCloser{out})
	if s.KeyID != "" {
		if to, err = sealed.NewWriter(out, k.Key, id, s.ID, archiveName); err != nil {
			return 0, err
		}
	}
	if err := compress(to, files, limit); err != nil {
		return 0, err
	}
	if err := errors.Join(to.Close(), out.Sync()); err != nil {
		return 0, err
	}
	fi, err := out.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// compress writes at most limit bytes of files to a compressed archive.
func compress(to io.Writer, files io.Reader, limit int64) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	n, err := io.Copy(z, io.LimitReader(files, limit+1))
	if err == nil && n > limit {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the files have more than %s", sandbox.FormatBytes(limit)), "remove large files; holes of sparse files count")
	}
	return errors.Join(err, z.Close())
}

// Hold keeps files in a file without a name, until the caller closes them. They end with
// the process.
func (k *Keeper) Hold(limit int64, pack func() (io.ReadCloser, error)) (_ *Files, err error) {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(k.Dir, ".held-")
	if err != nil {
		return nil, noSpace(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(noSpace(err), file.Close())
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	files, err := pack()
	if err != nil {
		return nil, err
	}
	defer files.Close()
	if err := compress(file, files, limit); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	z, err := newDecoder(file)
	if err != nil {
		return nil, err
	}
	return &Files{file: file, z: z}, nil
}

func newDecoder(from io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMemory))
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return sandbox.NoSpace(err)
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Files are the files of a snapshot, as an archive. A read of a damaged archive fails with
// an error of kind Unavailable. The caller closes it.
type Files struct {
	Manifest Manifest
	file     *os.File
	z        *zstd.Decoder
}

// Open opens a snapshot. The error is of kind NotFound if there is no such snapshot of
// files.
func (k *Keeper) Open(id string) (_ *Files, err error) {
	if !k.Has(id) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", id)
	}
	dir := filepath.Join(k.Dir, id)
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, damaged(err)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, damaged(err)
	}
	if s.Format != format {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot has format %d, and this build reads only %d", s.Format, format), "run the build that took it")
	}
	f := &Files{Manifest: s.Manifest}
	if f.file, err = os.Open(filepath.Join(dir, archiveName)); err != nil {
		return nil, damaged(err)
	}
	defer func() {
		if err != nil {
			f.file.Close()
		}
	}()
	if fi, err := f.file.Stat(); err != nil || fi.Size() != s.Bytes {
		return nil, damaged(errors.Join(err, fmt.Errorf("its archive does not have %d bytes", s.Bytes)))
	}
	from := io.Reader(f.file)
	if s.KeyID != "" {
		if from, err = k.unseal(f.file, id, &s); err != nil {
			return nil, err
		}
	}
	if f.z, err = newDecoder(from); err != nil {
		return nil, damaged(err)
	}
	return f, nil
}

func (k *Keeper) unseal(file io.Reader, id string, s *stored) (io.Reader, error) {
	const hint = "set saved.key to the file of the key with which it was saved"
	if len(k.Key) == 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot is encrypted, and this server has no key"), hint)
	}
	if known, err := k.Key.ID(); err != nil || known != s.KeyID {
		return nil, errors.Join(sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot is encrypted with another key"), hint), err)
	}
	r, err := sealed.NewReader(file, k.Key, id, s.ID, archiveName)
	if err != nil {
		return nil, damaged(err)
	}
	return r, nil
}

func damaged(err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot is damaged: %w", err), "delete it, and take another")
}

// Read implements [io.Reader].
func (f *Files) Read(p []byte) (int, error) {
	n, err := f.z.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}

// Close closes the files.
func (f *Files) Close() {
	f.z.Close()
	f.file.Close()
}

// Package filearchive writes and reads the files of a snapshot in the form of an image. It
// has no state.
//
// An image is all that a container engine keeps for its clients, and its content has to be
// an archive of files. The archive of a box's files is in it as a file, in parts, because
// the engine would change owners, links and names.
package filearchive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Dir is the directory of the image that has its files.
const Dir = "/snapshot"

// The image of a snapshot has these files in [Dir]: the manifest, the archive in
// parts, because its size is not known before, and the end. Their order is that of their
// names.
const (
	manifestFile = "0-manifest"
	partFile     = "1-%08d"
	endFile      = "2-end"
)

// partSize is the size of a part of the archive.
const partSize = 1 << 20

// An ending shows that the archive is complete.
type ending struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Write writes a tar archive for the image of a snapshot. It returns the size of
// the archive files, which has at most limit bytes.
func Write(to io.Writer, manifest any, files io.Reader, limit int64) (int64, error) {
	w := tar.NewWriter(to)
	add := func(name string, data []byte) error {
		h := tar.Header{Name: path.Join(Dir, name)[1:], Mode: 0o600, Size: int64(len(data)), Format: tar.FormatPAX}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	addJSON := func(name string, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return add(name, data)
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: Dir[1:] + "/", Mode: 0o700, Format: tar.FormatPAX}); err != nil {
		return 0, err
	}
	if err := addJSON(manifestFile, manifest); err != nil {
		return 0, err
	}
	end := ending{}
	sum := sha256.New()
	buf := make([]byte, partSize)
	for i := 0; ; i++ {
		n, err := io.ReadFull(files, buf)
		whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0
		if err != nil && !whole {
			return 0, err
		}
		sum.Write(buf[:n])
		if end.Bytes += int64(n); end.Bytes > limit {
			return 0, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the files have more than %s", sandbox.FormatBytes(limit)), "remove large files; holes of sparse files count")
		}
		if n > 0 {
			if err := add(fmt.Sprintf(partFile, i), buf[:n]); err != nil {
				return 0, err
			}
		}
		if whole {
			break
		}
	}
	end.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if err := addJSON(endFile, end); err != nil {
		return 0, err
	}
	return end.Bytes, w.Close()
}

// A Reader reads the files of a snapshot.
type Reader struct {
	r    *tar.Reader
	part int
	n    int64
	sum  hash.Hash
	err  error // after the last part
}

// Read decodes the manifest of an archive that Write wrote, and returns a reader of the
// files. from is an archive of [Dir].
func Read(from io.Reader, manifest any) (*Reader, error) {
	s := &Reader{r: tar.NewReader(from), sum: sha256.New()}
	name, err := s.next()
	if err == nil && name != manifestFile {
		err = errDamaged(fmt.Sprintf("it begins with %q", name))
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(s.r, 1<<20)).Decode(manifest)
	}
	if err == nil {
		var more bool
		if more, err = s.advance(); err == nil && !more {
			s.err = io.EOF
		}
	}
	if err != nil {
		return nil, sandbox.Wrap(err, "read snapshot", "")
	}
	return s, nil
}

func errDamaged(why string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot is damaged: %s", why), "delete it, and take another")
}

// next goes to the next file, and returns its name.
func (s *Reader) next() (string, error) {
	for {
		h, err := s.r.Next()
		if errors.Is(err, io.EOF) {
			return "", errDamaged("it is not complete")
		}
		if err != nil {
			return "", err
		}
		if h.Typeflag == tar.TypeReg {
			return path.Base(h.Name), nil
		}
	}
}

// advance goes to the next part, and reports whether there is one.
func (s *Reader) advance() (bool, error) {
	name, err := s.next()
	if err != nil {
		return false, err
	}
	if name == fmt.Sprintf(partFile, s.part) {
		s.part++
		return true, nil
	}
	if name != endFile {
		return false, errDamaged(fmt.Sprintf("%q follows part %d", name, s.part))
	}
	var end ending
	if err := json.NewDecoder(io.LimitReader(s.r, 1<<20)).Decode(&end); err != nil {
		return false, err
	}
	if end.Bytes != s.n || end.SHA256 != hex.EncodeToString(s.sum.Sum(nil)) {
		return false, errDamaged("its checksum differs")
	}
	return false, nil
}

// Read implements [io.Reader]. It returns io.EOF after the last part only if the
// checksum is right.
func (s *Reader) Read(p []byte) (int, error) {
	for s.err == nil {
		n, err := s.r.Read(p)
		s.sum.Write(p[:n])
		s.n += int64(n)
		if n > 0 {
			return n, nil
		}
		if errors.Is(err, io.EOF) {
			var more bool
			if more, s.err = s.advance(); s.err == nil && !more {
				s.err = io.EOF
			}
		} else {
			s.err = err
		}
	}
	return 0, s.err
}

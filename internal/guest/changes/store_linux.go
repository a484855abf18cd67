package changes

import (
	"bytes"
	"compress/flate"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Bounds of the kept contents: a share of the file system, within these bytes.
const (
	minStore   = 4 << 20
	maxStore   = 64 << 20
	storeShare = 16
)

// A store keeps contents in a file without a name. The zero value is an empty one.
type store struct {
	f     *os.File
	end   int64
	limit int64
	full  bool // also after a compaction
}

// place is where contents are in a store. Its zero value is nowhere.
type place struct {
	at int64
	n  int32
}

// put keeps contents. It reports false if there is no room.
func (s *store) put(content []byte) (place, bool) {
	if s.full || len(content) == 0 {
		return place{}, !s.full
	}
	if s.f == nil {
		if err := s.open(); err != nil {
			s.full = true
			return place{}, false
		}
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return place{}, false
	}
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	if s.end+int64(b.Len()) > s.limit {
		return place{}, false
	}
	if _, err := s.f.WriteAt(b.Bytes(), s.end); err != nil { // the disk is full
		return place{}, false
	}
	p := place{s.end, int32(b.Len())}
	s.end += int64(b.Len())
	return p, true
}

func (s *store) open() error {
	f, err := os.CreateTemp("", ".glovebox-changes-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		f.Close()
		return err
	}
	s.f = f
	s.limit = min(max(int64(st.Blocks)*st.Bsize/storeShare, minStore), maxStore)
	return nil
}

// get returns kept contents of a size.
func (s *store) get(p place, size int64) ([]byte, bool) {
	if size == 0 {
		return nil, true
	}
	if p.n == 0 {
		return nil, false
	}
	r := flate.NewReader(io.NewSectionReader(s.f, p.at, int64(p.n)))
	content := make([]byte, size)
	_, err := io.ReadFull(r, content)
	return content, err == nil
}

// compact moves the contents in use together. In a store that is then still almost
// full, nothing more is kept.
func (s *store) compact(used []*place) {
	if s.f == nil {
		return
	}
	next := store{}
	if next.open() != nil {
		s.full = true
		return
	}
	moved := map[place]place{}
	for _, p := range used {
		to, ok := moved[*p]
		if !ok && p.n > 0 {
			b := make([]byte, p.n)
			if _, err := s.f.ReadAt(b, p.at); err == nil {
				if _, err = next.f.WriteAt(b, next.end); err == nil {
					to = place{next.end, p.n}
					next.end += int64(p.n)
				}
			}
			moved[*p] = to
		}
		*p = to
	}
	next.full = next.end > next.limit/4*3
	s.close()
	*s = next
}

func (s *store) close() {
	if s.f != nil {
		s.f.Close()
	}
}

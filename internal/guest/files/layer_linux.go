package files

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// layer serves the root file system as a whole. POST marks its state, GET
// answers with the changes since the mark, PUT unpacks an archive.
func (s *Server) layer(w http.ResponseWriter, r *http.Request) {
	err := s.mayPack(r)
	if err == nil {
		switch r.Method {
		case http.MethodPost:
			err = s.marked.mark()
		case http.MethodGet:
			err = s.sendLayer(w)
		case http.MethodPut:
			err = s.unpack(r)
		default:
			err = rpc.Errorf(guestapi.CodeInvalidArgument, "the method must be POST, GET or PUT")
		}
	}
	if err != nil {
		refuse(w, err)
	}
}

// sendLayer answers with the changes since the mark.
func (s *Server) sendLayer(w http.ResponseWriter) error {
	m := &s.marked
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		return rpc.Errorf(guestapi.CodeFailedPrecondition, "nothing was marked")
	}
	sendArchive(w, func(l *layerWriter) error { return l.changes(m.files) })
	return nil
}

// sendArchive answers with the archive that write writes.
func sendArchive(w http.ResponseWriter, write func(*layerWriter) error) {
	w.Header().Set("Content-Type", "application/x-tar")
	out := bufio.NewWriterSize(w, copySize)
	l := layerWriter{Writer: tar.NewWriter(out), names: map[[2]uint64]string{}}
	err := write(&l)
	if err == nil {
		err = errors.Join(l.Close(), out.Flush())
	}
	if err != nil {
		// The answer has begun, so only aborting it reports the error.
		panic(http.ErrAbortHandler)
	}
}

// A layerWriter writes a layer in OCI's form.
type layerWriter struct {
	*tar.Writer
	names map[[2]uint64]string // of files with several hard links, by device and inode
}

// changes writes the differences between the root file system and was.
func (l *layerWriter) changes(was map[string]stamp) error {
	seen := make(map[string]bool, len(was))
	err := walkRoot(func(name string, st *unix.Stat_t) error {
		before, there := was[name]
		if there {
			seen[name] = true
			if before == stampOf(st) {
				return nil
			}
		}
		return l.file(name, st)
	})
	if err != nil {
		return err
	}
	var gone []string
	for name := range was {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		dir, base := path.Split(name)
		if parent := path.Clean(dir); parent != "/" && !seen[parent] {
			continue // the whiteout of the parent covers it
		}
		var st unix.Stat_t
		if unix.Lstat(path.Clean(dir), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue // the entry of the file that replaced the directory covers it
		}
		if err := l.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dir[1:] + ".wh." + base}); err != nil {
			return err
		}
	}
	return nil
}

// file writes one file.
func (l *layerWriter) file(name string, st *unix.Stat_t) error {
	h := &tar.Header{
		Name: name[1:], Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it vanished meanwhile
		}
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	default:
		return nil // sockets and devices do not belong in an image
	}
	var content *os.File
	if h.Size > 0 {
		var err error
		if content, err = regular.Open(name); errors.Is(err, fs.ErrNotExist) {
			return nil // it vanished meanwhile
		}
		if err != nil {
			return err
		}
		defer content.Close()
		var opened unix.Stat_t // another file may have its name now
		if err := unix.Fstat(int(content.Fd()), &opened); err != nil {
			return err
		}
		h.Size = opened.Size
	}
	if st.Nlink > 1 && kind != unix.S_IFDIR {
		id := [2]uint64{st.Dev, st.Ino}
		if first, ok := l.names[id]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return l.WriteHeader(h)
		}
		l.names[id] = h.Name
	}
	if err := l.WriteHeader(h); err != nil || h.Size == 0 {
		return err
	}
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	// If the file became shorter meanwhile, the next header or Close fails.
	_, err := io.CopyBuffer(struct{ io.Writer }{l.Writer}, struct{ io.Reader }{io.LimitReader(content, h.Size)}, buf[:])
	return err
}

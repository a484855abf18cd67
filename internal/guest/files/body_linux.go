package files

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A body is the received contents of a file. Its receiver closes it.
type body struct {
	buf  *[copySize]byte // the contents, if they fit
	file *os.File        // otherwise the contents, in a file without a name
	left string          // directory of the file, if it is to be removed
	size int64
}

func (b *body) close() {
	copyPool.Put(b.buf)
	if b.file != nil {
		b.file.Close()
	}
	if b.left != "" {
		_ = unix.Rmdir(b.left) // nothing can be done about an error
	}
}

// receive reads src, the contents of the file at name in dir, to its end. What
// does not fit into a buffer takes room in the file system of dir.
func (s *Server) receive(src io.Reader, dir, name string) (*body, error) {
	b := &body{buf: copyPool.Get().(*[copySize]byte)}
	in := &tracked{r: src}
	n, err := io.ReadFull(in, b.buf[:])
	b.size = int64(n)
	switch {
	case err == nil:
		if err = b.makeFile(dir, s.shared); err == nil {
			err = b.spill(in)
		}
	case in.err == nil: // the end
		err = nil
	}
	if err != nil {
		b.close()
		return nil, in.explain(err, name)
	}
	return b, nil
}

// spill moves a full buffer and the rest of in to the body's file.
func (b *body) spill(in io.Reader) error {
	if _, err := b.file.Write(b.buf[:]); err != nil {
		return err
	}
	if err := copyWith(b.buf, b.file, in); err != nil {
		return err
	}
	var err error
	b.size, err = b.file.Seek(0, io.SeekCurrent)
	return err
}

// writeTo makes the body the contents of f, which has the state st. If there is
// no room, f keeps its contents: first comes the part beyond the old end, which
// alone takes more room.
func (b *body) writeTo(f *os.File, st *unix.Stat_t) error {
	old := min(st.Size, b.size)
	if st.Blocks*512 < old {
		// Fill the holes. A file system that cannot do so in advance does it later.
		err := unix.Fallocate(int(f.Fd()), 0, 0, old)
		if err != nil && err != unix.EOPNOTSUPP {
			return err
		}
	}
	if err := b.writeEnd(f, old); err != nil {
		return errors.Join(err, f.Truncate(st.Size))
	}
	if err := b.writeStart(f, old); err != nil {
		we := rpc.Wire(rpc.FileError(err, f.Name()))
		return rpc.Errorf(we.Code, "%s; a part of the file is overwritten", we.Message)
	}
	if b.size < st.Size || b.size == 0 {
		return f.Truncate(b.size)
	}
	return nil
}

// writeEnd writes the contents from an offset on, the last ones first. The body's
// file becomes shorter meanwhile, so that both together take no more room.
func (b *body) writeEnd(f *os.File, from int64) error {
	if b.file == nil {
		return writeAt(f, b.buf[from:b.size], from)
	}
	for end := b.size; end > from; {
		begin := max(from, end-copySize)
		if err := b.copyRange(f, begin, end); err != nil {
			return err
		}
		if err := b.file.Truncate(begin); err != nil {
			return err
		}
		end = begin
	}
	return nil
}

// writeStart writes the contents up to an offset.
func (b *body) writeStart(f *os.File, to int64) error {
	if b.file == nil {
		return writeAt(f, b.buf[:to], 0)
	}
	for begin := int64(0); begin < to; begin += copySize {
		if err := b.copyRange(f, begin, min(to, begin+copySize)); err != nil {
			return err
		}
	}
	return nil
}

// copyRange copies at most copySize bytes from the body's file.
func (b *body) copyRange(f *os.File, begin, end int64) error {
	p := b.buf[:end-begin]
	if _, err := b.file.ReadAt(p, begin); err != nil {
		return err
	}
	return writeAt(f, p, begin)
}

// writeAt writes nothing for an empty p: even an empty write would be an event.
func writeAt(f *os.File, p []byte, at int64) error {
	if len(p) == 0 {
		return nil
	}
	_, err := f.WriteAt(p, at)
	return err
}

// makeFile makes the body's file, without a name, on the file system of dir: in
// the directory for temporary files if that is the same one, because programs may
// watch dir. A directory for temporary files that is not the sandbox's own is the
// last resort.
func (b *body) makeFile(dir string, shared bool) error {
	temp := os.TempDir()
	var here, there unix.Stat_t
	if !shared && unix.Stat(dir, &here) == nil && unix.Stat(temp, &there) == nil && here.Dev == there.Dev {
		dir, temp = temp, dir
	}
	err := b.makeFileIn(dir)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
		return b.makeFileIn(temp)
	}
	return err
}

// makeFileIn makes the file in a directory of its own, and removes both names.
// Otherwise watches of dir would report changes of the file. The kind of files
// that Linux makes without a name is reported, too, and gVisor has none.
func (b *body) makeFileIn(dir string) error {
	temp := tempName(dir)
	if err := unix.Mkdir(temp, 0o700); err != nil {
		return err
	}
	err := b.makeUnnamed(temp)
	if unix.Rmdir(temp) != nil { // as on NFS while the file is open
		b.left = temp
	}
	return err
}

func (b *body) makeUnnamed(dir string) error {
	d, err := regular.OpenAny(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	const name = "contents"
	fd, err := unix.Openat(d, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	b.file = os.NewFile(uintptr(fd), dir)
	return unix.Unlinkat(d, name, 0)
}

// copyWith copies to f by a buffer. It hides other methods than Read and Write,
// by which io.CopyBuffer would bypass the buffer.
func copyWith(buf *[copySize]byte, f *os.File, src io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{src}, buf[:])
	return err
}

// tracked separates errors of the source from errors of the destination.
type tracked struct {
	r   io.Reader
	err error
}

func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && err != io.EOF {
		t.err = err
	}
	return n, err
}

// explain returns the error of a copy to the file at name.
func (t *tracked) explain(err error, name string) error {
	if t.err != nil {
		return rpc.Errorf(guestapi.CodeCanceled, "%s: the upload broke off: %v", name, t.err)
	}
	return rpc.FileError(err, name)
}

package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/edit"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// edit makes all edits of a file, or none. It writes in place, as every write does.
// One file is edited at a time, because an edit has several copies of the file in the
// guest's memory.
func (s *Server) edit(r *http.Request, in *guestapi.EditRequest) (*sandbox.Edited, error) {
	c, name, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	if len(in.Edits) > sandbox.MaxEdits {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "edits: %d are more than %d", len(in.Edits), sandbox.MaxEdits)
	}
	for i, e := range in.Edits {
		if e.Old == "" {
			return nil, editError(in.Edits, &edit.Error{Index: i, Text: "old_string: is empty"}, name)
		}
	}
	select {
	case s.editing <- struct{}{}:
		defer func() { <-s.editing }()
	case <-r.Context().Done():
		return nil, rpc.Errorf(guestapi.CodeCanceled, "%s: %v", name, r.Context().Err())
	}
	var t *editTarget
	if err := s.accounts.As(c.Account, func() (err error) { t, err = openToEdit(name); return err }); err != nil {
		return nil, err
	}
	defer t.f.Close()
	// Other writes by the guest wait, so only programs can change the file meanwhile.
	turn := &s.turns[(t.st.Dev^t.st.Ino)%uint64(len(s.turns))]
	turn.Lock()
	defer turn.Unlock()
	if err := t.read(); err != nil {
		return nil, err
	}
	result, done, err := edit.Apply(t.contents, in.Edits)
	if err != nil {
		return nil, editError(in.Edits, err, name)
	}
	if bytes.Equal(result, t.contents) {
		return &done, nil
	}
	b, err := s.receive(bytes.NewReader(result), t.dir, name)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := t.write(s, c, b); err != nil {
		return nil, err
	}
	return &done, nil
}

// editError names the edit that does not apply, if there are several.
func editError(edits []sandbox.Edit, err error, name string) error {
	text := err.Error()
	if e, ok := errors.AsType[*edit.Error](err); ok && len(edits) > 1 {
		text = fmt.Sprintf("edits[%d]: %s; no edit of the call was made", e.Index, text)
	}
	return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: %s", name, text)
}

// An editTarget is a file that is edited, open for reading. It is opened for writing
// only to write, because watches report the end of that.
type editTarget struct {
	name     string // as the caller gave it
	dir      string // of the file behind links
	f        *os.File
	st       unix.Stat_t // when contents were read
	contents []byte
}

// openToEdit opens a file that the thread's user may read and write.
func openToEdit(name string) (*editTarget, error) {
	target, st, err := resolve(name)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, rpc.FileError(unix.ENOENT, name)
	}
	if err := checkWritable(target, st); err != nil {
		return nil, err
	}
	if st.Size > sandbox.MaxEditFile {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument,
			"%s: has %d bytes, more than the %d of a file that can be edited; change it by a program, such as sed", name, st.Size, sandbox.MaxEditFile)
	}
	f, err := regular.Open(target)
	if err != nil {
		return nil, rpc.FileError(err, name)
	}
	t := &editTarget{name: name, dir: path.Dir(target), f: f}
	if err := unix.Fstat(int(f.Fd()), &t.st); err != nil {
		f.Close()
		return nil, rpc.FileError(err, name)
	}
	return t, nil
}

// read reads the file. It fails if the file changes meanwhile.
func (t *editTarget) read() error {
	if err := unix.Fstat(int(t.f.Fd()), &t.st); err != nil {
		return rpc.FileError(err, t.name)
	}
	data, err := io.ReadAll(io.LimitReader(t.f, sandbox.MaxEditFile+1))
	if err != nil {
		return rpc.FileError(err, t.name)
	}
	if t.st.Size == 0 && len(data) > 0 {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: has no size, as the files of the kernel, and cannot be edited", t.name)
	}
	t.contents = data
	return t.check(&t.st)
}

// check returns an error if the file that st describes is not the one that was read.
func (t *editTarget) check(st *unix.Stat_t) error {
	if st.Dev == t.st.Dev && st.Ino == t.st.Ino && st.Nlink > 0 && st.Size == int64(len(t.contents)) && st.Mtim == t.st.Mtim && st.Ctim == t.st.Ctim {
		return nil
	}
	return rpc.Errorf(guestapi.CodeAborted, "%s: another program changed the file meanwhile, and the edit was not made; read it and edit it again", t.name)
}

// write makes a body the contents of the file, unless the path leads to another file
// now or the file changed since it was read.
func (t *editTarget) write(s *Server, c *caller, b *body) error {
	var w *os.File
	err := s.accounts.As(c.Account, func() error {
		target, st, err := resolve(t.name)
		if err != nil {
			return err
		}
		if st == nil {
			return t.check(&unix.Stat_t{})
		}
		fd, err := regular.OpenAny(target, unix.O_WRONLY, 0)
		if err == nil {
			w, err = regular.FromFD(fd, t.name)
		}
		return rpc.FileError(err, t.name)
	})
	if err != nil {
		return err
	}
	defer w.Close()
	// The contents, too: a change within one tick of the clock has the same time.
	same, err := t.same()
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(w.Fd()), &st)
	}
	if err != nil {
		return rpc.FileError(err, t.name)
	}
	if !same {
		return t.check(&unix.Stat_t{})
	}
	if err := t.check(&st); err != nil {
		return err
	}
	return rpc.FileError(errors.Join(b.writeTo(w, &st), w.Close()), t.name)
}

// same reports whether the file still has the contents.
func (t *editTarget) same() (bool, error) {
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	for at := 0; ; {
		n, err := t.f.ReadAt(buf[:], int64(at))
		if at+n > len(t.contents) || !bytes.Equal(buf[:n], t.contents[at:at+n]) {
			return false, nil
		}
		at += n
		if errors.Is(err, io.EOF) {
			return at == len(t.contents), nil
		}
		if err != nil {
			return false, err
		}
	}
}

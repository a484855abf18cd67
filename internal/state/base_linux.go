package state

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The base of a state is a file of another state, from which the box was made. It is
// beside the place of the state, as a link to that file, so it stays when the other state
// is removed. A [Packer] writes the file of the same name as its difference from the base:
// pages that are equal are not written again.

// baseSuffix ends the name of the base.
const baseSuffix = ".base"

// Bases are the files that are bases, as links in a directory. A file stays until the
// last box has ended that has it as its base.
type Bases struct{ Dir string }

// Share makes the file name of the state from the base of the state at dir, which need not
// exist yet. The link in b.Dir gets the name id. Share has no effect if the file is
// compressed or encrypted, if the place has a base already, or if the file system allows
// no more links to the file.
func (b Bases) Share(from *State, id, name, dir string) error {
	if from.Manifest.stored()[name] != from.Manifest.Files[name] {
		return nil
	}
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	kept := filepath.Join(b.Dir, filepath.Base(id))
	if _, err := os.Lstat(kept); err != nil {
		if err := link(filepath.Join(from.dir, name), kept); err != nil {
			return err
		}
		if err := b.Sweep(); err != nil {
			return err
		}
	}
	return link(kept, dir+baseSuffix)
}

// ShareBase makes the base of the state at one place, if it has one, that of another place.
func ShareBase(from, to string) error {
	err := link(from+baseSuffix, to+baseSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// link makes another name of a file. It has no effect if the name exists, or if the file
// has as many as it can have.
func link(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EMLINK) {
		return nil
	}
	return err
}

// Bytes returns the length of all bases.
func (b Bases) Bytes() (total int64, err error) {
	err = b.each(func(_ string, fi fs.FileInfo) error {
		total += fi.Size()
		return nil
	})
	return total, err
}

// Sweep removes the files that are the base of no state any more.
func (b Bases) Sweep() error {
	return b.each(func(path string, fi fs.FileInfo) error {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink == 1 {
			return os.Remove(path)
		}
		return nil
	})
}

func (b Bases) each(f func(path string, fi fs.FileInfo) error) error {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		fi, err := e.Info()
		if err == nil {
			err = f(filepath.Join(b.Dir, e.Name()), fi)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another process was faster
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openBase opens the base of the state at dir, and returns nil if it has none.
func openBase(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+baseSuffix, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, damaged("%w", err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(damaged("%s is not a file", dir+baseSuffix), err, f.Close())
	}
	return f, nil
}

// The difference of a file from its base is a sequence of pieces. Each begins with a
// number, as binary.AppendUvarint writes it. If the number is even, its half is a length in
// bytes, and that many bytes of data follow. If it is odd, its half is a number of pages,
// and the next number is the first of these pages in the base.

// writeDifference writes the difference between the content of r and the base.
func writeDifference(w io.Writer, r io.Reader, base *os.File, buffer []byte) error {
	index, err := indexOf(base, buffer)
	if err != nil {
		return err
	}
	d := differ{w: w, base: base, index: index}
	for {
		n, err := io.ReadFull(r, buffer)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		last := err != nil
		if err := d.add(buffer[:n]); err != nil || last {
			return errors.Join(err, d.flush())
		}
	}
}

// A pageIndex has the place of each different page of a base, by its hash.
type pageIndex struct {
	seed   maphash.Seed
	places map[uint64]int64
}

func indexOf(base *os.File, buffer []byte) (pageIndex, error) {
	x := pageIndex{maphash.MakeSeed(), map[uint64]int64{}}
	for at := int64(0); ; {
		n, err := base.ReadAt(buffer, at)
		for from := 0; from+page <= n; from += page {
			h := maphash.Bytes(x.seed, buffer[from:from+page])
			if _, known := x.places[h]; !known {
				x.places[h] = (at + int64(from)) / page
			}
		}
		at += int64(n)
		if err == io.EOF {
			return x, nil
		}
		if err != nil {
			return x, err
		}
	}
}

// A differ writes pieces. It keeps back a piece of the base, which the next page may make
// longer.
type differ struct {
	w           io.Writer
	base        *os.File
	index       pageIndex
	first, many int64 // pages of the base
	scratch     [page]byte
}

// add writes the pieces of data, which begin at a page.
func (d *differ) add(data []byte) error {
	fresh := 0 // where the data begin that the base does not have
	for at := 0; at+page <= len(data); at += page {
		place, found, err := d.find(data[at : at+page])
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := d.literal(data[fresh:at]); err != nil {
			return err
		}
		fresh = at + page
		if d.many > 0 && place == d.first+d.many {
			d.many++
			continue
		}
		if err := d.flush(); err != nil {
			return err
		}
		d.first, d.many = place, 1
	}
	return d.literal(data[fresh:])
}

// find returns a page of the base that is equal: the next one, if it is.
func (d *differ) find(data []byte) (place int64, found bool, err error) {
	if d.many > 0 {
		if same, err := d.same(d.first+d.many, data); same || err != nil {
			return d.first + d.many, same, err
		}
	}
	place, found = d.index.places[maphash.Bytes(d.index.seed, data)]
	if found {
		found, err = d.same(place, data)
	}
	return place, found, err
}

func (d *differ) same(place int64, data []byte) (bool, error) {
	_, err := d.base.ReadAt(d.scratch[:], place*page)
	if err == io.EOF {
		return false, nil
	}
	return err == nil && bytes.Equal(d.scratch[:], data), err
}

// literal writes data that the base does not have.
func (d *differ) literal(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := d.flush(); err != nil {
		return err
	}
	if _, err := d.w.Write(binary.AppendUvarint(nil, uint64(len(data))<<1)); err != nil {
		return err
	}
	_, err := d.w.Write(data)
	return err
}

// flush writes the piece that was kept back.
func (d *differ) flush() error {
	if d.many == 0 {
		return nil
	}
	piece := binary.AppendUvarint(nil, uint64(d.many)<<1|1)
	_, err := d.w.Write(binary.AppendUvarint(piece, uint64(d.first)))
	d.many = 0
	return err
}

// readDifference writes the file that writeDifference read: r has the difference. An error
// means that the difference is damaged, or that the file has more bytes than limit.
func readDifference(w io.Writer, r io.Reader, base *os.File, limit int64, buffer []byte) error {
	fi, err := base.Stat()
	if err != nil {
		return err
	}
	pages := uint64(fi.Size()) / page
	pieces := bufio.NewReaderSize(r, 64<<10)
	for {
		head, err := binary.ReadUvarint(pieces)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		from, n := io.Reader(pieces), head>>1
		if head&1 == 1 {
			first, err := binary.ReadUvarint(pieces)
			if err != nil {
				return err
			}
			if first > pages || n > pages-first {
				return errors.New("it needs more than its base has")
			}
			n *= page
			from = io.NewSectionReader(base, int64(first)*page, int64(n))
		}
		if n > uint64(limit) {
			return errors.New("it is longer than it was")
		}
		limit -= int64(n)
		copied, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(struct{ io.Reader }{from}, int64(n)), buffer)
		if err != nil {
			return err
		}
		if copied < int64(n) {
			return io.ErrUnexpectedEOF
		}
	}
}

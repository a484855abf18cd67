// Package erofs writes read-only file systems in Linux's EROFS format, without
// compression. Each image is one file. The data of each file in it is one run of
// whole blocks, so that it can be mapped into memory.
//
// A [Writer] takes the data of files first, and at the end a tree of [Node] that
// assigns the data to files. The writer checks nothing. Its caller must bound
// names, counts and sizes. Only package image imports it.
//
// An existing library first copies all data to a temporary file. It also puts the
// ends of files beside their inodes, where gVisor cannot map them.
package erofs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The file types, as in stat(2). Devices and sockets are not supported.
const (
	ModeType    = 0o170000
	ModeFIFO    = 0o010000
	ModeDir     = 0o040000
	ModeRegular = 0o100000
	ModeSymlink = 0o120000
)

// A Node is a file. A file with several names is a child of several directories,
// or several times of one.
type Node struct {
	// Mode has the type and the permissions, including the set-id bits.
	Mode     uint16
	UID, GID uint32
	// Mtime is in seconds since 1970.
	Mtime     int64
	MtimeNsec uint32
	// Data is the data of a regular file.
	Data Extent
	// Target is the target of a symbolic link; at most 4095 bytes.
	Target string
	// Children are the entries of a directory, by name. A name is not empty, ".",
	// or "..", has at most 255 bytes and no slash.
	Children map[string]*Node

	nlink  uint32
	nid    uint64
	number uint32
}

// IsDir reports whether n is a directory.
func (n *Node) IsDir() bool { return n.Mode&ModeType == ModeDir }

// IsSymlink reports whether n is a symbolic link.
func (n *Node) IsSymlink() bool { return n.Mode&ModeType == ModeSymlink }

// An Extent is the data of a file in an image. The zero value is no data.
type Extent struct {
	Size  int64
	block uint32
}

// writeBuffer is the size of one write, in bytes. It is a multiple of blockSize.
const writeBuffer = 1 << 20

// hole is the shortest run of zeros that is left as a hole in the file, in bytes.
// It is a multiple of blockSize.
const hole = 64 << 10

// A Writer writes one image. It is not safe for concurrent use. After an error,
// the file must be discarded.
type Writer struct {
	f      *os.File
	buf    []byte
	filled int
	at     int64 // offset of buf in the file; a multiple of blockSize
}

// NewWriter returns a writer that writes an image to f. The file must be empty.
// The caller closes it.
func NewWriter(f *os.File) *Writer {
	// The first block is for the superblock, which Finish writes.
	return &Writer{f: f, buf: make([]byte, writeBuffer), at: blockSize}
}

// Size returns the current size of the image, in bytes.
func (w *Writer) Size() int64 { return w.at + int64(w.filled) }

// Add appends the data of a file: the first size bytes of r. If r has fewer
// bytes, the error is [io.ErrUnexpectedEOF]. Add does not read further bytes.
func (w *Writer) Add(r io.Reader, size int64) (Extent, error) {
	if size == 0 {
		return Extent{}, nil
	}
	start := w.Size() >> blockBits
	if start+(size+blockSize-1)>>blockBits > maxBlocks {
		return Extent{}, fmt.Errorf("image is too large for its format")
	}
	for left := size; left > 0; {
		n := min(int64(len(w.buf)-w.filled), left)
		if _, err := io.ReadFull(r, w.buf[w.filled:w.filled+int(n)]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Extent{}, err
		}
		w.filled += int(n)
		left -= n
		if err := w.flushFull(); err != nil {
			return Extent{}, err
		}
	}
	return Extent{Size: size, block: uint32(start)}, w.align()
}

// Read returns data that Add appended.
func (w *Writer) Read(e Extent) ([]byte, error) {
	b := make([]byte, e.Size)
	if e.Size == 0 {
		return b, nil
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	// A hole at the end is not in the file yet.
	n, err := w.f.ReadAt(b, int64(e.block)<<blockBits)
	if err == io.EOF {
		clear(b[n:])
		err = nil
	}
	return b, err
}

// Drop frees the disk space of data that no file needs any more, if the host's
// file system supports it.
func (w *Writer) Drop(e Extent) {
	first := int64(e.block) << blockBits
	size := (e.Size + blockSize - 1) &^ (blockSize - 1)
	if size > 0 && first+size <= w.at {
		punch(w.f, first, size)
	}
}

// align fills the last block with zeros.
func (w *Writer) align() error {
	end := (w.filled + blockSize - 1) &^ (blockSize - 1)
	clear(w.buf[w.filled:end])
	w.filled = end
	return w.flushFull()
}

func (w *Writer) flushFull() error {
	if w.filled < len(w.buf) {
		return nil
	}
	return w.flush()
}

// flush writes the buffer, which has whole blocks. It leaves long runs of zeros
// as holes in the file, which take no space.
func (w *Writer) flush() error {
	b := w.buf[:w.filled]
	for len(b) > 0 {
		zeros := zeroPrefix(b)
		n := zeros
		if zeros == 0 {
			n = dataPrefix(b)
			if _, err := w.f.WriteAt(b[:n], w.at); err != nil {
				return err
			}
		}
		w.at += int64(n)
		b = b[n:]
	}
	w.filled = 0
	return nil
}

// zeroPrefix returns the length of the run of holes at the start of b.
func zeroPrefix(b []byte) int {
	n := 0
	for n+hole <= len(b) && isZero(b[n:n+hole]) {
		n += hole
	}
	return n
}

// dataPrefix returns the number of bytes to write before the next hole.
func dataPrefix(b []byte) int {
	n := min(hole, len(b))
	for n+hole <= len(b) && !isZero(b[n:n+hole]) {
		n += hole
	}
	if n+hole > len(b) {
		return len(b)
	}
	return n
}

var zeros [hole]byte

func isZero(b []byte) bool {
	return b[0] == 0 && b[len(b)-1] == 0 && string(b) == string(zeros[:len(b)])
}

// Finish writes the tree below root, which is a directory, and then the
// superblock. A file without a superblock is not an image.
func (w *Writer) Finish(root *Node) error {
	if err := w.flush(); err != nil {
		return err
	}
	l := layout{w: w, meta: w.at >> blockBits}
	l.plan(root)
	if l.err == nil {
		l.write(root)
	}
	if l.err != nil {
		return l.err
	}
	if err := w.align(); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	blocks := w.at >> blockBits
	if blocks > maxBlocks {
		return fmt.Errorf("image is too large for its format")
	}
	if err := w.f.Truncate(w.at); err != nil {
		return err
	}
	_, err := w.f.WriteAt(superblock(uint64(l.count), uint32(blocks), uint32(l.meta), uint16(root.nid)), 0)
	return err
}

// A layout assigns an offset to each node. plan and write visit the nodes in the
// same order, a directory before its entries. The inodes come first, each
// followed by its inline data. The blocks of the directories and links that are
// too large for that follow.
type layout struct {
	w     *Writer
	meta  int64 // first block of the inodes
	next  int64 // offset of the next inode from there
	count uint32

	order []*placed
	err   error
}

// A placed is a node and its location.
type placed struct {
	n      *Node
	parent *Node
	size   int64 // of the data of a directory or a link
	inline int   // how many bytes of it follow the inode
	at     int64 // offset of the inode
	block  int64 // first block of the data that do not follow the inode
}

// plan assigns offsets. The root comes first, because its number must be small.
func (l *layout) plan(root *Node) {
	l.next = inodeSize // number 0 is unused: programs take it for a missing file
	l.place(root, root)
	for i := 0; i < len(l.order); i++ {
		p := l.order[i]
		for _, name := range sortedNames(p.n) {
			c := p.n.Children[name]
			if c.nlink++; c.nlink == 1 || c.IsDir() {
				l.place(c, p.n)
			}
		}
	}
	end := (l.next + blockSize - 1) >> blockBits
	for _, p := range l.order {
		if rest := p.size - int64(p.inline); rest > 0 {
			p.block = l.meta + end
			end += (rest + blockSize - 1) >> blockBits
		}
	}
	if l.meta+end > maxBlocks {
		l.err = fmt.Errorf("image is too large for its format")
	}
}

func (l *layout) place(n, parent *Node) {
	p := &placed{n: n, parent: parent}
	switch {
	case n.IsDir():
		n.nlink = 2
		for _, c := range n.Children {
			if c.IsDir() {
				n.nlink++
			}
		}
		p.size = dirSize(n)
	case n.IsSymlink():
		p.size = int64(len(n.Target))
	}
	if tail := p.size % blockSize; tail > 0 && tail <= blockSize-inodeSize {
		p.inline = int(tail)
	}
	if l.next%blockSize+inodeSize+int64(p.inline) > blockSize {
		l.next = (l.next + blockSize - 1) &^ (blockSize - 1)
	}
	p.at = l.next
	n.nid = uint64(p.at >> slotBits)
	l.count++
	n.number = l.count
	l.next = (p.at + inodeSize + int64(p.inline) + 1<<slotBits - 1) &^ (1<<slotBits - 1)
	l.order = append(l.order, p)
}

// entries returns the entries of a directory, including "." and "..", sorted by
// bytes.
func entries(n, parent *Node) []entry {
	list := make([]entry, 0, len(n.Children)+2)
	list = append(list, entry{".", n.nid, 2}, entry{"..", parent.nid, 2})
	for name, c := range n.Children {
		list = append(list, entry{name, c.nid, fileType(c.Mode)})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return list
}

func sortedNames(n *Node) []string {
	names := make([]string, 0, len(n.Children))
	for name := range n.Children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func dirSize(n *Node) int64 {
	size := int64(0)
	for list := entries(n, n); len(list) > 0; {
		count, last := packed(list)
		list = list[count:]
		if len(list) > 0 {
			size += blockSize
		} else {
			size += int64(last)
		}
	}
	return size
}

// dirData returns the blocks of a directory.
func dirData(n, parent *Node, size int64) []byte {
	b := make([]byte, size)
	at := 0
	for list := entries(n, parent); len(list) > 0; at += blockSize {
		count, _ := packed(list)
		putEntries(b[at:min(at+blockSize, len(b))], list[:count])
		list = list[count:]
	}
	return b
}

// write writes all placed nodes.
func (l *layout) write(root *Node) {
	var inode [inodeSize]byte
	for _, p := range l.order {
		n := p.n
		clear(inode[:])
		format, size, block := uint16(formatPlain), uint64(p.size), uint32(p.block)
		if p.inline > 0 {
			format = formatInline
		}
		if n.Mode&ModeType == ModeRegular {
			size, block = uint64(n.Data.Size), n.Data.block
		}
		putInode(inode[:], n, format, size, block, n.number)
		l.put(l.meta<<blockBits+p.at, inode[:])
		if p.inline > 0 {
			data := p.data()
			l.put(l.meta<<blockBits+p.at+inodeSize, data[len(data)-p.inline:])
		}
	}
	for _, p := range l.order {
		if p.block > 0 {
			data := p.data()
			l.put(p.block<<blockBits, data[:len(data)-p.inline])
		}
	}
}

func (p *placed) data() []byte {
	if p.n.IsDir() {
		return dirData(p.n, p.parent, p.size)
	}
	return []byte(p.n.Target)
}

// put writes b at an offset at or behind the end of the file, and fills the gap
// with zeros.
func (l *layout) put(at int64, b []byte) {
	for l.err == nil && l.w.Size() < at {
		n := min(at-l.w.Size(), int64(len(l.w.buf)-l.w.filled))
		clear(l.w.buf[l.w.filled : l.w.filled+int(n)])
		l.w.filled += int(n)
		l.err = l.w.flushFull()
	}
	for l.err == nil && len(b) > 0 {
		n := copy(l.w.buf[l.w.filled:], b)
		l.w.filled += n
		b = b[n:]
		l.err = l.w.flushFull()
	}
}

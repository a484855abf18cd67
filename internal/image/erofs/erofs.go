// Package erofs writes read-only file systems in Linux's EROFS format, without
// compression: each image is one file, in which every file's data is one run
// of whole blocks, so that it can be mapped into memory as it is.
//
// A [Writer] is given the data of files first, as it comes, and at the end a
// tree of [Node] that tells which file has which data. It writes what it is
// given and judges nothing: names, counts and sizes are for its caller to
// bound. Only package image and driver/gvisor import it.
//
// There is a library for this, which keeps all data in a temporary file first
// and puts the ends of files beside their inodes, where gVisor cannot map them.
package erofs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The kinds of files, as in stat(2). There are no devices and no sockets.
const (
	ModeType    = 0o170000
	ModeFIFO    = 0o010000
	ModeDir     = 0o040000
	ModeRegular = 0o100000
	ModeSymlink = 0o120000
)

// A Node is a file. One that has several names is in several directories.
type Node struct {
	// Mode has the kind and the permissions, set-id bits among them.
	Mode     uint16
	UID, GID uint32
	// Mtime is in seconds since 1970.
	Mtime     int64
	MtimeNsec uint32
	// Data is what a regular file has.
	Data Extent
	// Target is what a symbolic link says; at most 4095 bytes.
	Target string
	// Children are what a directory has, by name; the names are neither empty,
	// nor longer than 255 bytes, nor "." or "..", and have no slash.
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

// writeBuffer is how much is written at once, in bytes: whole blocks.
const writeBuffer = 1 << 20

// hole is the least run of zeros that is left out of the file, in bytes: whole
// blocks.
const hole = 64 << 10

// A Writer makes one image. It is not safe for concurrent use. After an error
// the file is worthless.
type Writer struct {
	f      *os.File
	buf    []byte
	filled int
	at     int64 // of buf in the file; whole blocks
}

// NewWriter returns a writer of an image to f, which is empty and stays the
// caller's.
func NewWriter(f *os.File) *Writer {
	// The first block is the superblock's, which comes last.
	return &Writer{f: f, buf: make([]byte, writeBuffer), at: blockSize}
}

// Size returns how large the image is as yet, in bytes.
func (w *Writer) Size() int64 { return w.at + int64(w.filled) }

// Add appends the data of a file: all of r, which has size bytes. Less is
// [io.ErrUnexpectedEOF]; more is not looked at.
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

// Read returns data that was added.
func (w *Writer) Read(e Extent) ([]byte, error) {
	b := make([]byte, e.Size)
	if e.Size == 0 {
		return b, nil
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	// What was left out at the end is not in the file yet.
	n, err := w.f.ReadAt(b, int64(e.block)<<blockBits)
	if err == io.EOF {
		clear(b[n:])
		err = nil
	}
	return b, err
}

// Drop gives back the space of data that no file has any more, as far as the
// machine can.
func (w *Writer) Drop(e Extent) {
	first := int64(e.block) << blockBits
	size := (e.Size + blockSize - 1) &^ (blockSize - 1)
	if size > 0 && first+size <= w.at {
		punch(w.f, first, size)
	}
}

// align fills up the last block with zeros.
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

// flush writes the buffer, which has whole blocks, but for long runs of zeros:
// what is not written of a file is zero and takes no space.
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

// zeroPrefix returns the length of the holes that b begins with.
func zeroPrefix(b []byte) int {
	n := 0
	for n+hole <= len(b) && isZero(b[n:n+hole]) {
		n += hole
	}
	return n
}

// dataPrefix returns the length of what is to be written before the next hole.
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
// superblock: a file without one is no image.
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

// A layout gives every node its place. Nodes come in one order, a directory
// before what it has, both when their places are planned and when they are
// written: first the inodes, each with what can follow it directly, then the
// blocks of the directories and links that are too large for that.
type layout struct {
	w     *Writer
	meta  int64 // first block of the inodes
	next  int64 // offset of the next inode from there
	count uint32

	order []*placed
	err   error
}

// placed is a node and its place.
type placed struct {
	n      *Node
	parent *Node
	size   int64 // of what a directory or a link has
	inline int   // how much of it follows the inode
	at     int64 // of the inode
	block  int64 // of what does not follow the inode
}

// plan decides on places. The root is the first: its number must be small.
func (l *layout) plan(root *Node) {
	l.next = inodeSize // number 0 is nobody's: programs take it for no file
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

// entries returns what a directory has, itself and its parent included, in the
// order of bytes.
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

// dirData returns a directory's blocks.
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

// write writes all that is placed.
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

// put writes b at an offset of the file at or behind the end, with zeros up to
// there.
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

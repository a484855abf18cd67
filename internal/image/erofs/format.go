package erofs

import (
	"encoding/binary"
	"hash/crc32"
)

// The format is described at https://docs.kernel.org/filesystems/erofs.html.
// All numbers are little-endian.
const (
	blockBits = 12
	blockSize = 1 << blockBits

	superMagic  = 0xe0f5e1e2
	superOffset = 1024
	superSize   = 128

	// Compatible features: the superblock has a checksum, and times are
	// modification times.
	featureChecksum = 1 << 0
	featureMtime    = 1 << 1

	slotBits  = 5 // an inode's number is its offset in units of 32 bytes
	inodeSize = 64
	dirEntry  = 12

	// Format fields of an inode of 64 bytes. The data is in separate blocks, or
	// its last part follows the inode.
	formatPlain  = 1 | 0<<1
	formatInline = 1 | 2<<1

	maxBlocks = 1<<32 - 1
)

// superblock returns the first block of an image.
func superblock(inodes uint64, blocks, metaBlock uint32, root uint16) []byte {
	b := make([]byte, blockSize)
	s := b[superOffset : superOffset+superSize]
	le := binary.LittleEndian
	le.PutUint32(s[0:], superMagic)
	le.PutUint32(s[8:], featureChecksum|featureMtime)
	s[12] = blockBits
	le.PutUint16(s[14:], root)
	le.PutUint64(s[16:], inodes)
	le.PutUint32(s[36:], blocks)
	le.PutUint32(s[40:], metaBlock)
	// The checksum covers the rest of the block, with the checksum itself as
	// zero.
	sum := ^crc32.Checksum(b[superOffset:], crc32.MakeTable(crc32.Castagnoli))
	le.PutUint32(s[4:], sum)
	return b
}

// putInode writes n's inode to b.
func putInode(b []byte, n *Node, format uint16, size uint64, block, number uint32) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], format)
	le.PutUint16(b[4:], n.Mode)
	le.PutUint64(b[8:], size)
	le.PutUint32(b[16:], block)
	le.PutUint32(b[20:], number)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.Mtime))
	le.PutUint32(b[40:], n.MtimeNsec)
	le.PutUint32(b[44:], n.nlink)
}

// fileType returns the type of an inode for a directory entry.
func fileType(mode uint16) byte {
	switch mode & ModeType {
	case ModeRegular:
		return 1
	case ModeDir:
		return 2
	case ModeFIFO:
		return 5
	case ModeSymlink:
		return 7
	}
	return 0
}

// An entry is a name in a directory.
type entry struct {
	name string
	nid  uint64
	kind byte
}

// packed returns how many of entries fit into one block, and their size in bytes.
func packed(entries []entry) (count, size int) {
	for _, e := range entries {
		next := size + dirEntry + len(e.name)
		if next > blockSize {
			break
		}
		count, size = count+1, next
	}
	return count, size
}

// putEntries writes entries, which fit, to a block: first all entries, then all
// names.
func putEntries(b []byte, entries []entry) {
	le := binary.LittleEndian
	at := dirEntry * len(entries)
	for i, e := range entries {
		d := b[i*dirEntry:]
		le.PutUint64(d[0:], e.nid)
		le.PutUint16(d[8:], uint16(at))
		d[10] = e.kind
		at += copy(b[at:], e.name)
	}
}

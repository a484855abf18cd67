package search

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// names are the entries of a directory, in the order of their names. They are in one
// buffer, because a million strings take three times the memory.
type names struct {
	text []byte   // of each: its kind, its length in two bytes, its name
	at   []uint32 // positions in text
}

// Kinds of an [Entry].
const (
	KindFile = byte(iota)
	kindDir
	KindLink
	kindOther
)

func (n *names) len() int { return len(n.at) }

func (n *names) name(i int) []byte {
	rest := n.text[n.at[i]+1:]
	return rest[2 : 2+binary.LittleEndian.Uint16(rest)]
}

func (n *names) kind(i int) byte { return n.text[n.at[i]] }

// size returns the memory of the names in bytes.
func (n *names) size() int { return cap(n.text) + 4*cap(n.at) }

// errNames means that the names of a directory do not fit into the room.
var errNames = errors.New("has more names than a walk can hold")

// readNames reads a directory whose names, with what they need, take at most room
// bytes.
func readNames(ctx context.Context, f *os.File, room int) (*names, error) {
	n := &names{}
	for ctx.Err() == nil {
		batch, err := f.ReadDir(1024)
		for _, e := range batch {
			if err := n.add(e, room); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			slices.SortFunc(n.at, func(a, b uint32) int { return bytes.Compare(n.nameAt(a), n.nameAt(b)) })
			return n, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

func (n *names) nameAt(at uint32) []byte {
	size := binary.LittleEndian.Uint16(n.text[at+1:])
	return n.text[at+3 : at+3+uint32(size)]
}

// add adds an entry. A buffer that must grow has old and new memory for a moment.
func (n *names) add(e os.DirEntry, room int) error {
	name := e.Name()
	if n.size()+2*(len(n.text)+4*len(n.at)) > 2*room {
		return errNames
	}
	kind := kindOther
	switch mode := e.Type(); {
	case mode.IsRegular():
		kind = KindFile
	case mode.IsDir():
		kind = kindDir
	case mode&fs.ModeSymlink != 0:
		kind = KindLink
	}
	n.at = append(n.at, uint32(len(n.text)))
	n.text = append(n.text, kind)
	n.text = binary.LittleEndian.AppendUint16(n.text, uint16(len(name)))
	n.text = append(n.text, name...)
	return nil
}

// openAt opens an entry of a directory for reading. It follows no link and never
// blocks.
func openAt(dir *os.File, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openDirAt opens a directory in a directory. Without O_NONBLOCK, because with it
// package os asks the kernel for events of each directory.
func openDirAt(dir *os.File, name string) (*os.File, error) {
	fd, err := openAt(dir, name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

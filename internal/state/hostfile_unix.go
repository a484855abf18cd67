//go:build unix

package state

import (
	"os"
	"syscall"
)

// HostFileAt returns the file at a path, which must be a regular file.
func HostFileAt(path string) (HostFile, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return HostFile{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return HostFile{}, &os.PathError{Op: "save", Path: path, Err: os.ErrInvalid}
	}
	return HostFile{Path: path, Bytes: fi.Size(), Modified: fi.ModTime().UnixNano(), Inode: st.Ino}, nil
}

//go:build unix

package safepath

import (
	"io/fs"
	"syscall"
	"time"
)

// AttributesOf returns the attributes in a description of a file.
func AttributesOf(fi fs.FileInfo) Attributes {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return Attributes{Accessed: fi.ModTime(), Changed: fi.ModTime()}
	}
	return Attributes{
		UID: int(st.Uid), GID: int(st.Gid),
		Accessed: time.Unix(0, accessTime(st)), Changed: time.Unix(0, changeTime(st)),
	}
}

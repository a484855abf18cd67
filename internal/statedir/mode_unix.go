//go:build unix

package statedir

import (
	"os"
	"syscall"
)

// looseness reports whether users other than the owner may use a directory, the
// owner's UID, and whether the owner is the user of this process.
func looseness(d *os.File) (loose bool, owner int, ours bool, err error) {
	fi, err := d.Stat()
	if err != nil {
		return false, 0, false, err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		owner = int(st.Uid)
	}
	return fi.Mode().Perm()&0o077 != 0, owner, owner == os.Geteuid(), nil
}

package safepath

import (
	"fmt"
	"io/fs"
	"time"
)

// Attributes are what a description of a file has beyond [fs.FileInfo].
type Attributes struct {
	UID, GID          int // 0 where the system has none
	Accessed, Changed time.Time
}

// Chmod sets the permission bits of a file or directory. It does not follow a link
// at the end of name: for a link, the error wraps [ErrType].
func (d *Dir) Chmod(name string, mode fs.FileMode) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	fi, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a link, and has no permissions", ErrType, Show(name))
	}
	// A program may replace the file by a link now. The link then leads to another
	// file below d.
	return d.root.Chmod(name, mode.Perm())
}

// CanChown reports whether this process may give files of d to other users.
func (d *Dir) CanChown() bool { return d.uid >= 0 }

// Chown changes the owner of a file, which is not followed if it is a link. -1 leaves
// a part unchanged.
func (d *Dir) Chown(name string, uid, gid int) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	return d.root.Lchown(name, uid, gid)
}

// Mkdir creates a directory whose parent exists, for the owner of d. If there is a
// file of that name, the error wraps [fs.ErrExist].
func (d *Dir) Mkdir(name string) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	if err := d.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return d.own(name)
}

package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The sentry opens the files of a box itself, below directories that it receives.
// gVisor has a second process for each box, the gofer, which mounts these
// directories and passes them to the sentry. After that, the gofer gets few
// requests, and refuses most of them. A box of this driver has no gofer: the
// supervisor passes the directories to the sentry. The remaining requests are
// answered within the sentry's process, which gets no additional rights for that.
//
// The mounts that the sentry receives are detached from all other mounts. No name
// leads out of such a directory's descriptor, not even "..".

// A Tree is a directory or a file, with the mounts below it, in a mount that is in
// no namespace. It exists as long as a process has it open.
type Tree struct{ *os.File }

// Open returns the tree at path, with attributes added to its own. how may be
// unix.AT_RECURSIVE, which includes all mounts below it. Later mounts there do not
// appear in the tree, because they would not have the attributes.
func Open(path string, how uint, attributes uint64) (*Tree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW|how)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	t := &Tree{os.NewFile(uintptr(fd), path)}
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|how, &attr); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mount_setattr", Path: path, Err: err}, t.Close())
	}
	return t, nil
}

// Reopen opens the root of a tree for reading. Each caller gets its own descriptor,
// because reading a directory moves the offset.
func (t *Tree) Reopen() (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", t.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// OpenMount opens the source of a mount. It adds to the mount's options the facts
// that gVisor needs about the file system.
func OpenMount(m *specs.Mount) (*Tree, error) {
	t, err := Open(m.Source, 0, attributesOf(m))
	if err != nil {
		return nil, err
	}
	if err := t.AddOptions(m); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// attributesOf returns the mount attributes that the options of a mount require.
func attributesOf(m *specs.Mount) (attributes uint64) {
	for option, attribute := range map[string]uint64{
		"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
	} {
		if slices.Contains(m.Options, option) {
			attributes |= attribute
		}
	}
	return attributes
}

// AddOptions adds to the options of a mount the facts that gVisor needs about the
// tree's file system.
func (t *Tree) AddOptions(m *specs.Mount) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(t.Fd()), &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: m.Source, Err: err}
	}
	switch fs.Type {
	case unix.OVERLAYFS_SUPER_MAGIC:
		// A file opened for reading does not show later writes.
		m.Options = append(m.Options, "overlayfs_stale_read")
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		// These file systems write when a program closes a file, so each open file
		// needs its own handle.
		m.Options = append(m.Options, "disable_file_handle_sharing")
	}
	return nil
}

// HandOver returns a socket from which the sentry receives a tree when it mounts
// it: the root for reading, and the tree to keep it open. The sentry cannot get
// them earlier, because it refuses to start with an open directory before it gives
// up its rights. The caller closes the socket.
func (t *Tree) HandOver() (*os.File, error) {
	root, err := t.Reopen()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	near, far, err := message.Socketpair()
	if err != nil {
		return nil, err
	}
	defer near.Close()
	if err := unix.Sendmsg(int(near.Fd()), []byte{0}, unix.UnixRights(int(root.Fd()), int(t.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over %s: %w", t.Name(), err), far.Close())
	}
	return far, nil
}

// ReadOnly are the mount attributes of files that do not belong to the box.
const ReadOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// CheckWorkspace returns an error if a workspace cannot be mounted.
func CheckWorkspace(dir string) error {
	if dir == "" {
		return nil
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || !filepath.IsAbs(dir) {
		return sandbox.Errorf(sandbox.Invalid, "workspace %q is not a directory (%v)", dir, err)
	}
	return nil
}

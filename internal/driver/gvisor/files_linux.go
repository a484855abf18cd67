package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// gVisor's kernel opens the files of a box itself, below directories that it is
// given. gVisor has a second process for each box, the gofer, to mount them and to
// hand them over, which from then on is asked for little else, and refuses most of
// that here. A box has none: the maker hands the kernel the directories, and what
// is left to ask is answered within the kernel, which may do no more for that.
//
// What is handed over is cut off from all other mounts: from the descriptor of a
// directory no name leads out of it, not even "..".

// A tree is a directory or a file, with what is mounted there, in a mount that is in
// nobody's namespace. It lasts as long as somebody has it open.
type tree struct{ *os.File }

// openTree returns the tree at path, with these attributes on top of those that it
// has; how may be unix.AT_RECURSIVE, for all that is mounted below it as well. What
// is mounted there later does not appear in it, which would not have the attributes.
func openTree(path string, how uint, attributes uint64) (*tree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW|how)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	t := &tree{os.NewFile(uintptr(fd), path)}
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|how, &attr); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mount_setattr", Path: path, Err: err}, t.Close())
	}
	return t, nil
}

// open opens the root of a tree for reading: each time anew, as what reads a
// directory's entries moves the descriptor's offset.
func (t *tree) open() (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", t.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// openMount opens what a box is to see at one place, and adds to the mount's
// options what gVisor must know of the file system it is on.
func openMount(m *specs.Mount) (*tree, error) {
	t, err := openTree(m.Source, 0, attributesOf(m))
	if err != nil {
		return nil, err
	}
	if err := t.tellGVisor(m); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// attributesOf returns the attributes of a mount that its options ask for.
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

// tellGVisor adds to the options of a mount what gVisor must know of the file system
// that the tree is on.
func (t *tree) tellGVisor(m *specs.Mount) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(t.Fd()), &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: m.Source, Err: err}
	}
	switch fs.Type {
	case unix.OVERLAYFS_SUPER_MAGIC:
		// A file that was opened for reading does not see what is written later.
		m.Options = append(m.Options, "overlayfs_stale_read")
	case unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		// They write when a program closes a file, so that each must have its own.
		m.Options = append(m.Options, "disable_file_handle_sharing")
	}
	return nil
}

// handOver returns a socket from which a kernel takes a tree when it mounts it: its
// root to read from, and itself, to keep. It cannot have them at once: a kernel that
// has a directory open before it gives up its rights does not start.
func (t *tree) handOver() (*os.File, error) {
	root, err := t.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	near, far, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer near.Close()
	if err := unix.Sendmsg(int(near.Fd()), []byte{0}, unix.UnixRights(int(root.Fd()), int(t.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over %s: %w", t.Name(), err), far.Close())
	}
	return far, nil
}

// openMounts opens what a box sees: its root file system, then each mount of the
// specification that is of the host; of the workspace the tree, if there is one. The
// caller closes them.
func (m *maker) openMounts(b *madeBox, spec *specs.Spec, image *imageRoot, workspace *tree) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	add := func(file *os.File, err error) error {
		if err == nil {
			files = append(files, file)
		}
		return err
	}
	if image == nil {
		makeRoot := m.hostRoot
		if b.record.FirstUser != 0 {
			makeRoot = m.userRoot
		}
		root, err := makeRoot()
		if err != nil {
			return nil, err
		}
		if err := add(root.handOver()); err != nil {
			return nil, err
		}
	} else {
		// A file, which the kernel reads as it is. Were it not read-only, whoever
		// has it open could still change its mode.
		root, err := openTree(image.File, 0, readOnly)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		if err := add(root.open()); err != nil {
			return nil, err
		}
	}
	for i := range spec.Mounts {
		if !specutils.HasMountConfig(spec.Mounts[i]) {
			continue
		}
		var mount *tree
		switch to := spec.Mounts[i].Destination; {
		case b.record.FirstUser != 0 && to == sandbox.WorkDir:
			mount, err = workspace, workspace.tellGVisor(&spec.Mounts[i])
		case b.record.FirstUser != 0 && to == guestPath:
			mount, err = m.userGuest, m.userGuest.tellGVisor(&spec.Mounts[i])
		default:
			if mount, err = openMount(&spec.Mounts[i]); err == nil {
				defer mount.Close()
			}
		}
		if err != nil {
			return files, err
		}
		if err := add(mount.handOver()); err != nil {
			return files, err
		}
	}
	return files, nil
}

// readOnly is how what is not the box's own is mounted.
const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

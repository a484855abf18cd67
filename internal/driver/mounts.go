package driver

import "context"

// A Mount is a directory that a box has besides its workspace.
type Mount struct {
	// Path is where the box has the directory. It is absolute and clean, is neither
	// [sandbox.WorkDir] nor below it, and no other mount of the box has it or is
	// below it. The driver makes the path if the image does not have it; contents of
	// the image there are not seen.
	Path string
	// Dir is the directory, as in [Spec.Workspace].
	Dir string
	// ReadOnly means that programs cannot change it, whatever their user.
	ReadOnly bool `json:",omitempty"`
}

// An UnnamedFile is a regular file of a workspace that no longer has a name, but
// stays on the disk because a program has it open.
type UnnamedFile struct {
	// Dir is the directory that has the file: the box's workspace or one of its
	// mounts.
	Dir string
	// Device and Inode identify the file, because boxes that share a workspace can
	// have the same file open.
	Device, Inode uint64
	// Bytes is the disk space that the file occupies.
	Bytes int64
}

// An UnnamedLister is a box that lists the files without a name that its programs
// hold open in its workspace and its mounts. It also answers while the box is paused.
type UnnamedLister interface {
	UnnamedFiles(ctx context.Context) ([]UnnamedFile, error)
}

package sandbox

import "time"

// A FileType is what a directory entry is.
type FileType string

// The file types.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeSymlink   FileType = "symlink"
	TypeOther     FileType = "other"
)

// A File describes a file in a sandbox. A name that is not UTF-8 is shown with
// U+FFFD in place of what is not.
type File struct {
	Path     string    `json:"path"`
	Type     FileType  `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // as ls -l shows it
	Owner    string    `json:"owner"`
	Modified time.Time `json:"modified_at"`
	Target   string    `json:"target,omitempty"` // of a symlink
}

// An UnpackTo says where in a sandbox an archive goes.
type UnpackTo struct {
	// Path is the directory that the archive's names are below; it is made.
	Path string
	// File says that the archive has one file, which is to be at Path itself
	// unless that is a directory.
	File bool
	// Owner is a user, by name or number, perhaps with a colon and a group; ""
	// is root.
	Owner string
}

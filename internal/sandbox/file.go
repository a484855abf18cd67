package sandbox

import "time"

// A FileType is the type of a directory entry.
type FileType string

// The file types.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeSymlink   FileType = "symlink"
	TypeOther     FileType = "other"
)

// A File describes a file in a sandbox. In a name that is not UTF-8, U+FFFD
// replaces the invalid bytes.
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
	// Path is the directory below which the archive is unpacked. It is created if
	// it does not exist.
	Path string
	// File is true if the archive holds one file, which is to be at Path itself.
	// If Path is a directory, the file goes into it.
	File bool
	// Owner is a user, by name or number, optionally with a colon and a group. ""
	// is root.
	Owner string
}

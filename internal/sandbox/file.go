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

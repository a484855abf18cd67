package sandbox

import "time"

// A Workspace describes a workspace as its owner sees it.
type Workspace struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created_at"`
	// Used is when a sandbox or a transfer last used it.
	Used time.Time `json:"last_used_at"`
	// InUse is true while a sandbox holds it.
	InUse bool           `json:"in_use"`
	Usage WorkspaceUsage `json:"usage"`
	// Quota bounds its usage. A zero field is no limit.
	Quota WorkspaceUsage `json:"quota"`
}

// WorkspaceUsage is the usage of a workspace. Bytes are counted as the disk
// counts them, so holes do not count. Files counts files of every type, including
// directories.
type WorkspaceUsage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// Exceeds reports whether u exceeds quota. A zero field of quota is no limit.
func (u WorkspaceUsage) Exceeds(quota WorkspaceUsage) bool {
	return quota.Bytes > 0 && u.Bytes > quota.Bytes || quota.Files > 0 && u.Files > quota.Files
}

// A Change says what happened to a file.
type Change string

// The changes.
const (
	FileCreated  Change = "created"
	FileModified Change = "modified"
	FileRemoved  Change = "removed"
)

// A FileChange is one file that was created, modified or removed.
type FileChange struct {
	// Path is relative to [WorkDir], or absolute for a file elsewhere.
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Change Change `json:"change"`
	// SHA256 is the hash of the contents in hexadecimal. It is empty if the contents
	// were too many to hash, or the file changed or vanished meanwhile.
	SHA256 string `json:"sha256,omitempty"`
}

// Changes are the changes of files during a run.
type Changes struct {
	// Files are the first changed files. Omitted counts the rest.
	Files   []FileChange `json:"files,omitempty"`
	Omitted int          `json:"omitted,omitempty"`
	// The totals include the omitted files.
	Created  int `json:"created,omitempty"`
	Modified int `json:"modified,omitempty"`
	Removed  int `json:"removed,omitempty"`
}

// Copied counts the results of a copy.
type Copied struct {
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Links       int   `json:"links"`
	Bytes       int64 `json:"bytes"`
	// Skipped counts entries of other types, and links that lead out of the
	// copied tree.
	Skipped int `json:"skipped,omitempty"`
	// ToolFiles are the first ten copied files that programs on this machine
	// execute or obey. A directory stands for everything in it. Refused is true
	// if the copy left them out.
	ToolFiles []string `json:"tool_files,omitempty"`
	Refused   bool     `json:"refused,omitempty"`
}

// A VolumeFile describes a file of a workspace. Path begins with a slash, which is the
// workspace. UID and GID are numbers in sandboxes.
type VolumeFile struct {
	Path                        string
	Type                        FileType
	Size                        int64
	Mode                        uint32 // permission bits
	UID, GID                    int
	Accessed, Modified, Changed time.Time
	Target                      string // of a symlink
}

// VolumeAttributes are attributes to set; nil leaves one unchanged. Mode has
// permission bits only.
type VolumeAttributes struct {
	Mode     *uint32
	UID, GID *int
}

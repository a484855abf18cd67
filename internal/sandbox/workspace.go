package sandbox

import "time"

// A Workspace describes a workspace as its owner sees it.
type Workspace struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created_at"`
	// Used is when a sandbox or a transfer last had it.
	Used time.Time `json:"last_used_at"`
	// InUse says that a sandbox has it now.
	InUse bool           `json:"in_use"`
	Usage WorkspaceUsage `json:"usage"`
	// Quota is the most it may hold; zero is no limit.
	Quota WorkspaceUsage `json:"quota"`
}

// WorkspaceUsage is how much is in a workspace: bytes as the disk counts them,
// so that holes do not count, and files of any kind, directories too.
type WorkspaceUsage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// Exceeds reports whether u is more than a quota, in which zero is no limit.
func (u WorkspaceUsage) Exceeds(quota WorkspaceUsage) bool {
	return quota.Bytes > 0 && u.Bytes > quota.Bytes || quota.Files > 0 && u.Files > quota.Files
}

// A Change is what became of a file.
type Change string

// The changes.
const (
	FileCreated  Change = "created"
	FileModified Change = "modified"
	FileRemoved  Change = "removed"
)

// A FileChange is one file that a run created, modified or removed.
type FileChange struct {
	// Path is relative to [WorkDir].
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Change Change `json:"change"`
}

// Changes are what changed in a workspace while a run went on.
type Changes struct {
	// Files are the first of them; Omitted is how many more there are.
	Files   []FileChange `json:"files,omitempty"`
	Omitted int          `json:"omitted,omitempty"`
	// The totals of all.
	Created  int `json:"created,omitempty"`
	Modified int `json:"modified,omitempty"`
	Removed  int `json:"removed,omitempty"`
}

// Copied is what was copied.
type Copied struct {
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Links       int   `json:"links"`
	Bytes       int64 `json:"bytes"`
	// Skipped are things that are none of these, and links that lead out of
	// what was copied.
	Skipped int `json:"skipped,omitempty"`
	// ToolFiles are those that programs on this machine execute or obey, the
	// first ten: a directory stands for all that is in it. Refused says that
	// they were left out.
	ToolFiles []string `json:"tool_files,omitempty"`
	Refused   bool     `json:"refused,omitempty"`
}

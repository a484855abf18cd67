package sandbox

import (
	"strings"
	"time"
)

// SnapshotIDPrefix begins the identifier of a snapshot. The rest is as of a sandbox's.
const SnapshotIDPrefix = "snap_"

// NewSnapshotID returns a fresh identifier of a snapshot.
func NewSnapshotID() string { return SnapshotIDPrefix + randomText() }

// ValidSnapshotID reports whether s has the form of a snapshot's identifier.
func ValidSnapshotID(s string) bool { return validID(s, SnapshotIDPrefix) }

// DriverSnapshot returns the identifier by which a driver keeps a snapshot. It has the
// form of a sandbox's.
func DriverSnapshot(id string) string { return IDPrefix + strings.TrimPrefix(id, SnapshotIDPrefix) }

// A SnapshotState is the state of a snapshot.
type SnapshotState string

// The states of a snapshot. One that is being made cannot be used yet, and the files of
// a lost one are gone.
const (
	SnapshotMaking SnapshotState = "making"
	SnapshotKept   SnapshotState = "kept"
	SnapshotLost   SnapshotState = "lost"
)

// A Snapshot is the state of a sandbox at one moment: its memory, its programs and its
// files outside of the workspace.
type Snapshot struct {
	ID    string
	Name  string // not unique
	State SnapshotState
	// Sandbox is the sandbox that it is of. Parent is the snapshot whose state that
	// sandbox had last before, or "".
	Sandbox, Parent string
	Image           string
	Workspace       string // of the sandbox, or ""
	Labels          map[string]string
	Bytes           int64 // on the disk; 0 if the driver is not told
	// Build is the build of Glovebox that can read the snapshot, or "" if any can, or
	// if it is not known.
	Build string
	// Disk means that it has only the files that programs changed, without memory.
	Disk    bool
	Created time.Time
	// Expires is when it is removed at the latest; zero is never.
	Expires time.Time
}

// Size returns Bytes as text, or that they are not known.
func (s Snapshot) Size() string {
	if s.Bytes == 0 && s.State == SnapshotKept {
		return "unknown size"
	}
	return FormatBytes(s.Bytes)
}

// A ForkRequest asks for copies of a running sandbox.
type ForkRequest struct {
	Count int // 1 if it is 0
	// TTL is [CreateRequest].TTL of each copy.
	TTL time.Duration
	// CopyWorkspace gives each copy a copy of the sandbox's workspace, instead of an
	// empty one. It has no effect if the sandbox has none.
	CopyWorkspace bool
	// Disk means that the copies have only the files that programs changed, without
	// memory.
	Disk bool
}

// MaxForks bounds the copies that one request can ask for.
const MaxForks = 100

// A Fork is one of the copies that a request asked for, or the reason why there is
// none.
type Fork struct {
	Sandbox Sandbox
	Err     error
}

// A SnapshotFilter selects snapshots. Empty fields select all.
type SnapshotFilter struct {
	Sandbox string
	Name    string
}

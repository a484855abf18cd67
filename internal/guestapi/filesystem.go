package guestapi

import "time"

// The procedures of the filesystem service, as URL paths.
const (
	FSStat     = "/filesystem.Filesystem/Stat"
	FSListDir  = "/filesystem.Filesystem/ListDir"
	FSMakeDir  = "/filesystem.Filesystem/MakeDir"
	FSMove     = "/filesystem.Filesystem/Move"
	FSRemove   = "/filesystem.Filesystem/Remove"
	FSWatchDir = "/filesystem.Filesystem/WatchDir" // server stream

	FSCreateWatcher    = "/filesystem.Filesystem/CreateWatcher"
	FSGetWatcherEvents = "/filesystem.Filesystem/GetWatcherEvents"
	FSRemoveWatcher    = "/filesystem.Filesystem/RemoveWatcher"
)

// PathFiles serves file contents: GET reads (ranges are honoured), POST writes.
// Query: path, username. A POST carries either raw bytes
// (application/octet-stream; query append=true adds to the end, which is ours)
// or a multipart form of "file" parts, with the Content-Encoding gzip or none. A whole write is atomic: it goes to a
// temporary name and is renamed, so that a broken upload leaves the old file.
const PathFiles = "/files"

// PathPreviews answers a GET with what a model is shown of a picture in a file.
// Query: path, username, and type, the picture's MIME type. A file that is not
// shown is of kind Invalid, with the reason. It is ours, and guests of earlier
// versions do not have it.
const PathPreviews = "/previews"

// PathHealth answers 204 while the guest works.
const PathHealth = "/health"

// FileType is the type of a directory entry.
type FileType string

// The file types. E2B's protocol has the first three; what is none of them
// (a FIFO, a socket, a device) is unspecified.
const (
	TypeFile        FileType = "FILE_TYPE_FILE"
	TypeDirectory   FileType = "FILE_TYPE_DIRECTORY"
	TypeSymlink     FileType = "FILE_TYPE_SYMLINK"
	TypeUnspecified FileType = "FILE_TYPE_UNSPECIFIED"
)

// Entry describes a file. JSON cannot carry names that are not UTF-8, so Name
// and Path replace what is not by U+FFFD, and RawPath has the bytes then.
type Entry struct {
	Name          string    `json:"name"`
	Type          FileType  `json:"type"`
	Path          string    `json:"path"`
	RawPath       []byte    `json:"rawPath,omitempty"` // ours
	Size          int64     `json:"size,string"`
	Mode          uint32    `json:"mode"`
	Permissions   string    `json:"permissions"`
	Owner         string    `json:"owner"`
	Group         string    `json:"group"`
	ModifiedTime  time.Time `json:"modifiedTime"`
	SymlinkTarget string    `json:"symlinkTarget,omitempty"`
}

// PathRequest is the body of Stat, MakeDir and Remove.
type PathRequest struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // ours: wins over Path
}

// EntryResponse is the reply of Stat, MakeDir and Move.
type EntryResponse struct {
	Entry Entry `json:"entry"`
}

// ListDirRequest lists a directory. Depth 1 (or 0) is its own entries, 2 those
// of its subdirectories too, and so on. Links are not followed.
type ListDirRequest struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // ours
	Depth   uint32 `json:"depth,omitempty"`
}

// MaxListEntries bounds the entries of one ListDir reply.
const MaxListEntries = 10_000

// ListDirResponse lists entries in the order of their paths.
type ListDirResponse struct {
	Entries []Entry `json:"entries"`
	// Truncated is ours: there were more than MaxListEntries.
	Truncated bool `json:"truncated,omitempty"`
}

// MoveRequest renames a file or directory.
type MoveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Ours: win over Source and Destination.
	RawSource      []byte `json:"rawSource,omitempty"`
	RawDestination []byte `json:"rawDestination,omitempty"`
}

// WatchDirRequest watches a directory.
type WatchDirRequest struct {
	Path      string `json:"path"`
	RawPath   []byte `json:"rawPath,omitempty"` // ours
	Recursive bool   `json:"recursive,omitempty"`
}

// EventType is what happened to a file.
type EventType string

// The event types.
const (
	EventCreate EventType = "EVENT_TYPE_CREATE"
	EventWrite  EventType = "EVENT_TYPE_WRITE"
	EventRemove EventType = "EVENT_TYPE_REMOVE"
	EventRename EventType = "EVENT_TYPE_RENAME"
	EventChmod  EventType = "EVENT_TYPE_CHMOD"
)

// WatchMessage is one message of a watch stream; one field is set. The first
// is Start: what happens after it is reported.
type WatchMessage struct {
	Start      *struct{}        `json:"start,omitempty"`
	Filesystem *FilesystemEvent `json:"filesystem,omitempty"`
	Keepalive  *KeepaliveEvent  `json:"keepalive,omitempty"`
}

// FilesystemEvent is a change; Name is relative to the watched directory, and
// RawName is for names that are not UTF-8, as in Entry.
type FilesystemEvent struct {
	Name    string    `json:"name"`
	RawName []byte    `json:"rawName,omitempty"` // ours
	Type    EventType `json:"type"`
}

// CreateWatcherResponse names a watcher that is polled.
type CreateWatcherResponse struct {
	WatcherID string `json:"watcherId"`
}

// WatcherRequest is the body of GetWatcherEvents and RemoveWatcher.
type WatcherRequest struct {
	WatcherID string `json:"watcherId"`
}

// GetWatcherEventsResponse holds what happened since the last call.
type GetWatcherEventsResponse struct {
	Events []FilesystemEvent `json:"events"`
}

// WriteInfo is what a write made; a POST to PathFiles replies with a list.
type WriteInfo struct {
	Name string   `json:"name"`
	Type FileType `json:"type"`
	Path string   `json:"path"`
}

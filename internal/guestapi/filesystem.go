package guestapi

import (
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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

// PathFiles serves file contents: GET and HEAD read (ranges are honoured), POST
// and PUT write. Query: path, username. A write carries raw bytes
// (application/octet-stream) or a multipart form of "file" parts. Its
// Content-Encoding is gzip or none. The guest writes a file in place once it has
// received all of it, so a broken upload leaves the old contents. Guests of
// earlier versions replace the file by a rename. The query append=true, which is
// ours, appends raw bytes as they come.
const PathFiles = "/files"

// MetadataPrefix begins the headers of a write that set the metadata of its files,
// such as "X-Metadata-Author". A write replaces all metadata of a file. Guests of
// earlier versions ignore these headers.
const MetadataPrefix = "X-Metadata-"

// PathPreviews answers a GET with the preview of a picture in a file. Query:
// path, username, and type, the picture's MIME type. A file without a preview
// gives an error of kind Invalid with the reason. The path is ours, and guests
// of earlier versions do not have it.
const PathPreviews = "/previews"

// PathSixels answers a POST of a picture in base64 with the picture as sixels.
// Query: type, the picture's MIME type, and width, the most pixels of a line. A
// picture that cannot be shown gives an error of kind Invalid with the reason. The
// path is ours, and guests of earlier versions do not have it.
const PathSixels = "/sixels"

// PathHealth answers 204 while the guest works.
const PathHealth = "/health"

// InterpreterHealth is the answer of E2B's code interpreter at [PathHealth], with
// status 200. It is JSON.
const InterpreterHealth = `"OK"`

// FileType is the type of a directory entry.
type FileType string

// The file types. E2B's protocol has the first three. Other files, such as a
// FIFO, a socket or a device, are unspecified.
const (
	TypeFile        FileType = "FILE_TYPE_FILE"
	TypeDirectory   FileType = "FILE_TYPE_DIRECTORY"
	TypeSymlink     FileType = "FILE_TYPE_SYMLINK"
	TypeUnspecified FileType = "FILE_TYPE_UNSPECIFIED"
)

// TypeWritten is the type of a file in the answer to a write, for clients that do
// not ask for extensions. E2B's agent names types differently there.
const TypeWritten FileType = "file"

// Entry describes a file. For clients that do not ask for extensions, a symbolic
// link has the type and the mode of its target, and SymlinkTarget is the resolved
// path; a link that leads nowhere is unspecified. JSON cannot carry names that are not UTF-8. Name and
// Path have U+FFFD for bytes that are not UTF-8, and RawPath then has the path's
// bytes.
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
	// Metadata are the extended attributes below "user.e2b.", for clients that do
	// not ask for extensions.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// File returns the entry as callers of a sandbox see it.
func (e *Entry) File() sandbox.File {
	f := sandbox.File{
		Path: e.Path, Type: sandbox.TypeOther, Size: e.Size, Mode: e.Permissions, Owner: e.Owner,
		Modified: e.ModifiedTime, Target: e.SymlinkTarget,
	}
	switch e.Type {
	case TypeFile:
		f.Type = sandbox.TypeFile
	case TypeDirectory:
		f.Type = sandbox.TypeDirectory
	case TypeSymlink:
		f.Type = sandbox.TypeSymlink
	}
	return f
}

// PathRequest is the body of Stat, MakeDir and Remove. Remove of a missing file
// succeeds for clients that do not ask for extensions.
type PathRequest struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // ours: takes precedence over Path
}

// EntryResponse is the reply of Stat, MakeDir and Move.
type EntryResponse struct {
	Entry Entry `json:"entry"`
}

// ListDirRequest lists a directory. Depth 1 (or 0) lists its own entries, depth
// 2 also those of its subdirectories, and so on. Symbolic links are not
// followed.
type ListDirRequest struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // ours
	Depth   uint32 `json:"depth,omitempty"`
}

// MaxListEntries bounds the entries of a ListDir reply.
const MaxListEntries = 10_000

// ListDirResponse lists entries in the order of their paths.
type ListDirResponse struct {
	Entries []Entry `json:"entries"`
	// Truncated is ours: there were more entries than fit into the reply.
	Truncated bool `json:"truncated,omitempty"`
}

// MoveRequest renames a file or directory.
type MoveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Ours: take precedence over Source and Destination.
	RawSource      []byte `json:"rawSource,omitempty"`
	RawDestination []byte `json:"rawDestination,omitempty"`
}

// WatchDirRequest watches a directory.
type WatchDirRequest struct {
	Path      string `json:"path"`
	RawPath   []byte `json:"rawPath,omitempty"` // ours
	Recursive bool   `json:"recursive,omitempty"`
	// IncludeEntry asks for the entries of files in events.
	IncludeEntry bool `json:"includeEntry,omitempty"`
	// AllowNetworkMounts accepts file systems of other machines, which may report
	// no changes. Clients that ask for extensions need not set it.
	AllowNetworkMounts bool `json:"allowNetworkMounts,omitempty"`
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
// message is Start: changes after it are reported.
type WatchMessage struct {
	Start      *struct{}        `json:"start,omitempty"`
	Filesystem *FilesystemEvent `json:"filesystem,omitempty"`
	Keepalive  *KeepaliveEvent  `json:"keepalive,omitempty"`
}

// FilesystemEvent is a change. Name is relative to the watched directory.
// RawName has the bytes of a name that is not UTF-8, as in Entry.
type FilesystemEvent struct {
	Name    string    `json:"name"`
	RawName []byte    `json:"rawName,omitempty"` // ours
	Type    EventType `json:"type"`
	// Entry describes a file that was made or changed, if the request asks for
	// it and the file is still there.
	Entry *Entry `json:"entry,omitempty"`
}

// CreateWatcherResponse names a new watcher, which the caller polls.
type CreateWatcherResponse struct {
	WatcherID string `json:"watcherId"`
}

// WatcherRequest is the body of GetWatcherEvents and RemoveWatcher.
type WatcherRequest struct {
	WatcherID string `json:"watcherId"`
}

// GetWatcherEventsResponse holds the changes since the last call.
type GetWatcherEventsResponse struct {
	Events []FilesystemEvent `json:"events"`
}

// WriteInfo describes a written file. A POST to PathFiles replies with a list.
type WriteInfo struct {
	Name     string            `json:"name"`
	Type     FileType          `json:"type"`
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata,omitempty"` // as in Entry
}

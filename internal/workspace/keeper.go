package workspace

import (
	"context"
	"io"
	"io/fs"
	"time"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Keeper keeps workspaces: [Local] on this machine, a [Remote] elsewhere. Both
// behave the same, because they run the same code. See [Set] for the methods.
type Keeper interface {
	Conversation(p sandbox.Principal, name string) (id ID, ok bool)
	Key(purpose string) []byte
	Find(text string) (ID, bool)
	Path(id ID) string
	Make(id ID) (made bool, err error)
	Remove(id ID) (purge func() error, err error)
	Open(id ID) (Opened, error)
	Close() error
}

// Opened is an open workspace. See [Workspace] for the methods. The caller closes
// it.
type Opened interface {
	// Read opens a file. ctx must not end before the caller has read it.
	Read(ctx context.Context, name string) (*File, error)
	Write(ctx context.Context, name string, r io.Reader) (int64, error)
	Export(ctx context.Context, out io.Writer, most int64) (safepath.Counts, error)
	Import(ctx context.Context, in io.Reader, bytes, files int64) (safepath.Counts, error)
	Snapshot(ctx context.Context) (*Snapshot, error)
	Measure(ctx context.Context) (sandbox.WorkspaceUsage, error)
	DiskUsed() (used int64, ok bool)
	// Clock returns the time of the clock with which the file system stamps
	// files.
	Clock() time.Time
	Close() error
}

// A File is a file of a workspace that is being read.
type File struct {
	io.ReadSeekCloser
	Info fs.FileInfo
	// Version changes with each change of the file.
	Version string
}

// Local is a Keeper for a Set on this machine.
type Local struct{ *Set }

var _ Keeper = Local{}

// Open opens a workspace, as [Set.Open] does.
func (l Local) Open(id ID) (Opened, error) {
	w, err := l.Set.Open(id)
	if err != nil {
		return nil, err
	}
	return opened{w}, nil
}

type opened struct{ *Workspace }

func (o opened) Read(_ context.Context, name string) (*File, error) {
	f, info, err := o.Workspace.Read(name)
	if err != nil {
		return nil, err
	}
	return &File{f, info, safepath.Version(info)}, nil
}

func (o opened) Clock() time.Time { return Clock() }

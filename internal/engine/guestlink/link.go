package guestlink

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Guest is the engine's interface to a box's guest: [guestapi.Client], or a
// fake in tests.
type Guest interface {
	Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (Events, error)
	Connect(ctx context.Context, sel guestapi.ProcessSelector, have guestapi.OutputCounts) (Events, error)
	SendInput(ctx context.Context, sel guestapi.ProcessSelector, data []byte, pty bool) error
	CloseStdin(ctx context.Context, sel guestapi.ProcessSelector) error
	Signal(ctx context.Context, sel guestapi.ProcessSelector, sig guestapi.Signal) error
	Resize(ctx context.Context, sel guestapi.ProcessSelector, size guestapi.PTYSize) error
	Health(ctx context.Context) error
	Listening(ctx context.Context, sel guestapi.ProcessSelector) ([]int, error)

	Execute(ctx context.Context, user string, req *guestapi.ExecuteRequest, room guestapi.LineRoom) (Events, error)
	ConnectExecution(ctx context.Context, tag string, room guestapi.LineRoom) (Events, error)
	InterruptExecution(ctx context.Context, tag string, req *guestapi.InterruptRequest) error
	ExecutionInput(ctx context.Context, tag string, req *guestapi.InputRequest) error
	Contexts(ctx context.Context) ([]guestapi.Context, error)
	RestartContext(ctx context.Context, id string) error
	RemoveContext(ctx context.Context, id string) error

	Stat(ctx context.Context, path string, opts guestapi.FileOptions) (*guestapi.Entry, error)
	ListDir(ctx context.Context, path string, depth int, opts guestapi.FileOptions) (*guestapi.ListDirResponse, error)
	MakeDir(ctx context.Context, path string, opts guestapi.FileOptions) error
	Remove(ctx context.Context, path string, opts guestapi.FileOptions) error
	Read(ctx context.Context, path string, offset, length int64, opts guestapi.FileOptions) (io.ReadCloser, int64, error)
	Write(ctx context.Context, path string, r io.Reader, opts guestapi.WriteOptions) (*guestapi.WriteInfo, error)
	Edit(ctx context.Context, path string, edits []sandbox.Edit, opts guestapi.FileOptions) (*sandbox.Edited, error)
	Search(ctx context.Context, r sandbox.SearchRequest, opts guestapi.FileOptions) (*sandbox.Found, error)
	Glob(ctx context.Context, path, glob string, depth int, opts guestapi.FileOptions) (*guestapi.GlobResponse, error)

	Changes(ctx context.Context, req guestapi.ChangesRequest) (*guestapi.ChangesResponse, error)
	Diff(ctx context.Context, r sandbox.DiffRequest) (sandbox.Diff, error)
	SetBase(ctx context.Context, files []sandbox.CopiedFile) error

	Sixel(ctx context.Context, picture sandbox.Base64, mime string, width int) ([]byte, error)
	Preview(ctx context.Context, path, mime string, opts guestapi.FileOptions) ([]byte, error)

	Unpack(ctx context.Context, r io.Reader, opts guestapi.UnpackOptions) error
	MarkLayer(ctx context.Context) error
	Layer(ctx context.Context) (io.ReadCloser, error)

	RoundTrip(req *http.Request) (*http.Response, error)
	DialPort(ctx context.Context, port int) (HalfCloser, error)

	Close()
}

// Events is the stream of a program's events: [guestapi.Events].
type Events interface {
	Next() (*guestapi.Event, error)
	Close() error
}

// client adapts a guestapi.Client to the guest interface.
type client struct{ *guestapi.Client }

// Dial returns the guest of a box. It connects at the first call.
func Dial(b driver.Box) Guest {
	return client{guestapi.NewClient(b.Dial)}
}

func (c client) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (Events, error) {
	return events(c.Client.Start(ctx, req, opts))
}

func (c client) Connect(ctx context.Context, sel guestapi.ProcessSelector, have guestapi.OutputCounts) (Events, error) {
	return events(c.Reconnect(ctx, sel, &have))
}

func (c client) Execute(ctx context.Context, user string, req *guestapi.ExecuteRequest, room guestapi.LineRoom) (Events, error) {
	return events(c.Client.Execute(ctx, user, req, room))
}

func (c client) ConnectExecution(ctx context.Context, tag string, room guestapi.LineRoom) (Events, error) {
	return events(c.Client.ConnectExecution(ctx, tag, room))
}

// events returns no stream as a nil interface.
func events(s *guestapi.Events, err error) (Events, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c client) DialPort(ctx context.Context, port int) (HalfCloser, error) {
	conn, err := c.Client.DialPort(ctx, port)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// A HalfCloser is a connection whose writing half can be closed alone.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

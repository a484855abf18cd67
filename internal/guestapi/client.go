package guestapi

import (
	"context"
	"io"
	"net"
	"time"
)

// A Dialer opens a stream to a guest; driver.Box.Dial is one.
type Dialer func(context.Context) (net.Conn, error)

// NewClient returns a client that reaches its guest by dial. It opens
// connections when they are needed and shares them between calls.
func NewClient(dial Dialer) *Client { panic("unwritten") }

// A Client speaks to one guest. Its methods are safe for concurrent use. Their
// errors wrap a [sandbox.Kind]: Invalid, NotFound and Conflict as the guest
// answered, Unavailable if it could not be reached or broke off.
type Client struct{}

// Close closes the client's connections, which ends the streams on them.
func (c *Client) Close() { panic("unwritten") }

// CloseIdle closes the connections that nothing uses now.
func (c *Client) CloseIdle() { panic("unwritten") }

// Health returns nil if the guest answers.
func (c *Client) Health(ctx context.Context) error { panic("unwritten") }

// StartOptions are what a start takes beside the request's body.
type StartOptions struct {
	User    string        // sandbox.User if empty
	Timeout time.Duration // 0 is none; see StartRequest
}

// Start starts a process and returns the stream of its events, whose first has
// been read. Ending ctx ends the stream, not the process.
func (c *Client) Start(ctx context.Context, req *StartRequest, opts StartOptions) (*Process, error) {
	panic("unwritten")
}

// Connect attaches to a process that was started before.
func (c *Client) Connect(ctx context.Context, sel ProcessSelector) (*Process, error) {
	panic("unwritten")
}

// A Process is the stream of one process's events. It is for one reader.
type Process struct{}

// PID returns the process's number inside the sandbox.
func (p *Process) PID() uint32 { panic("unwritten") }

// Next returns the next Data or End event; keepalives are passed over. After
// End it returns io.EOF. A stream that breaks before End gives an error of kind
// Unavailable.
func (p *Process) Next() (*ProcessEvent, error) { panic("unwritten") }

// Close ends the stream, not the process.
func (p *Process) Close() error { panic("unwritten") }

// Processes lists the processes that were started through the guest.
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) { panic("unwritten") }

// SendInput writes to a process's input (or terminal, if pty).
func (c *Client) SendInput(ctx context.Context, sel ProcessSelector, data []byte, pty bool) error {
	panic("unwritten")
}

// CloseStdin ends a process's input.
func (c *Client) CloseStdin(ctx context.Context, sel ProcessSelector) error { panic("unwritten") }

// Signal signals a process; see SendSignalRequest.
func (c *Client) Signal(ctx context.Context, sel ProcessSelector, sig Signal) error {
	panic("unwritten")
}

// Resize sets the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, sel ProcessSelector, size PTYSize) error {
	panic("unwritten")
}

// FileOptions qualify a file call.
type FileOptions struct {
	User string // sandbox.User if empty
}

// Stat describes a file, without following a link.
func (c *Client) Stat(ctx context.Context, path string, opts FileOptions) (*Entry, error) {
	panic("unwritten")
}

// ListDir lists a directory.
func (c *Client) ListDir(ctx context.Context, path string, depth int, opts FileOptions) (*ListDirResponse, error) {
	panic("unwritten")
}

// MakeDir makes a directory and its parents; one that exists is of kind
// Conflict.
func (c *Client) MakeDir(ctx context.Context, path string, opts FileOptions) error {
	panic("unwritten")
}

// Move renames a file or directory.
func (c *Client) Move(ctx context.Context, from, to string, opts FileOptions) error {
	panic("unwritten")
}

// Remove removes a file or a directory with all in it; what is not there is of
// kind NotFound.
func (c *Client) Remove(ctx context.Context, path string, opts FileOptions) error {
	panic("unwritten")
}

// Read opens a file from offset on; length < 0 is to the end. Size is the
// whole file's. The caller closes the reader.
func (c *Client) Read(ctx context.Context, path string, offset, length int64, opts FileOptions) (r io.ReadCloser, size int64, err error) {
	panic("unwritten")
}

// WriteOptions qualify Write.
type WriteOptions struct {
	User   string
	Append bool // add to the end; not atomic
}

// Write writes r to a file, making its parents. It streams: nothing holds the
// whole of r.
func (c *Client) Write(ctx context.Context, path string, r io.Reader, opts WriteOptions) (*WriteInfo, error) {
	panic("unwritten")
}

// Watch streams changes below a directory until ctx ends or the Watcher is
// closed.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, opts FileOptions) (*Watcher, error) {
	panic("unwritten")
}

// A Watcher is a stream of changes. It is for one reader.
type Watcher struct{}

// Next returns the next change.
func (w *Watcher) Next() (*FilesystemEvent, error) { panic("unwritten") }

// Close ends the stream.
func (w *Watcher) Close() error { panic("unwritten") }

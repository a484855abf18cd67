package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// The driver and its maker communicate over a socket of packets. Each packet is one
// request, in JSON. It carries the end of a new stream socket for the reply;
// closing that stream early cancels the request. A request that opens streams to
// the guest carries their far ends as further descriptors.

// maxRequest bounds a request, in bytes; the largest contains a specification.
const maxRequest = 160 << 10

// request is a request of the driver to the maker.
type request struct {
	Op   string       `json:"op"`
	Ref  string       `json:"ref,omitempty"`
	Spec *driver.Spec `json:"spec,omitempty"`
	// Secrets are the values of the spec's secrets, which the encoded spec does not
	// contain.
	Secrets []string `json:"secrets,omitempty"`
	// After is the number of the last connection that the caller knows. Network is
	// a policy to put in force.
	After   int64           `json:"after,omitempty"`
	Network sandbox.Network `json:"network,omitempty"`
	// Root is the root file system of the spec's image; nil for the host's.
	Root *imageRoot `json:"root,omitempty"`
	// FirstUser is the first of the box's users. If it is 0, the box has the
	// maker's users; WhyHostUsers is then the reason, if root runs the server. If
	// it is not 0 and the spec has a workspace, the last file is the workspace's
	// tree.
	FirstUser    int    `json:"first_user,omitempty"`
	WhyHostUsers string `json:"why_host_users,omitempty"`
	// Trace requests spans of the maker's work.
	Trace bool `json:"trace,omitempty"`
}

// secretValues returns the values of a spec's secrets.
func secretValues(spec *driver.Spec) []string {
	var values []string
	for _, s := range spec.Secrets {
		values = append(values, s.Value.Reveal())
	}
	return values
}

// imageRoot is the root file system of a box with an OCI image.
type imageRoot struct {
	File   string              `json:"file"` // EROFS image of the root file system
	Config sandbox.ImageConfig `json:"config"`
}

// The operations of a request.
const (
	opCreate     = "create"
	opAttach     = "attach"
	opDial       = "dial"
	opReceipt    = "receipt"
	opIncidents  = "incidents"
	opUnnamed    = "unnamed" // returns the sentry and the workspace
	opPause      = "pause"
	opResume     = "resume"
	opDestroy    = "destroy"
	opList       = "list"
	opDiscard    = "discard"
	opProbe      = "probe"
	opTraffic    = "traffic"
	opSetNetwork = "set network"
	opAuthority  = "authority"
	opWatch      = "watch" // carries the box's memory file
)

// reply is the maker's answer.
type reply struct {
	Err       *wireError       `json:"err,omitempty"`
	Report    *report          `json:"report,omitempty"`
	Sentry    int              `json:"sentry,omitempty"` // process ID, for requests that need it
	Workspace string           `json:"workspace,omitempty"`
	Incidents driver.Incidents `json:"incidents"`
	Refs      []string         `json:"refs,omitempty"`
	Traffic   *sandbox.Traffic `json:"traffic,omitempty"`
	Authority []byte           `json:"authority,omitempty"`
	Spans     []trace.Span     `json:"spans,omitempty"`
}

// wireError carries an error with the properties that callers examine.
type wireError struct {
	Kind        sandbox.Kind `json:"kind"`
	Text        string       `json:"text"`
	Hint        string       `json:"hint,omitempty"`
	Gone        bool         `json:"gone,omitempty"`
	Unavailable bool         `json:"unavailable,omitempty"`
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) && sandbox.KindOf(err) == sandbox.Internal {
		err = sandbox.NoSpace(err)
	}
	return &wireError{
		Kind:        sandbox.KindOf(err),
		Text:        err.Error(),
		Hint:        sandbox.HintOf(err),
		Gone:        errors.Is(err, driver.ErrGone),
		Unavailable: errors.Is(err, driver.ErrUnavailable),
	}
}

// remoteError is an error that the maker returned.
type remoteError struct{ w wireError }

func (e *remoteError) Error() string { return e.w.Text }

func (e *remoteError) Is(target error) bool {
	return e.w.Gone && target == driver.ErrGone ||
		e.w.Unavailable && target == driver.ErrUnavailable
}

func (w *wireError) err() error {
	if w == nil {
		return nil
	}
	return &sandbox.Error{Kind: w.Kind, Err: &remoteError{*w}, Hint: w.Hint}
}

// streamBuffer is the buffer of a stream to a guest, in bytes, for each direction.
const streamBuffer = 1 << 20

// socketpair returns two connected stream sockets, both closed on exec.
func socketpair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	for _, fd := range fds {
		// The guest's output waits here until it is read. A larger buffer wakes the
		// sentry less often. The host kernel may allow less.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, streamBuffer)
	}
	return os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far"), nil
}

// fileConn turns f, a socket, into a connection, and closes f.
func fileConn(f *os.File) (net.Conn, error) {
	defer f.Close()
	return net.FileConn(f)
}

// sendRequest sends req with files, the first of which is the reply stream.
func sendRequest(conn *net.UnixConn, req *request, files ...*os.File) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(data) > maxRequest {
		return sandbox.Errorf(sandbox.Invalid, "request of %d bytes is too large", len(data))
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	return err
}

// receiveRequest receives a request and its files, which the caller closes. When
// the driver has ended, the error is io.EOF or net.ErrClosed. It reads into data,
// of maxRequest bytes, which the caller reuses. Otherwise these buffers would be
// most of the maker's garbage.
func receiveRequest(conn *net.UnixConn, data []byte) (*request, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*(2+maxStreams)))
	n, oobn, _, _, err := conn.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, net.ErrClosed
	}
	files, err := filesOf(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	var req request
	if err := json.Unmarshal(data[:n], &req); err != nil {
		closeAll(files)
		return nil, nil, fmt.Errorf("decode request: %w", err)
	}
	return &req, files, nil
}

func filesOf(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

package message

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MaxRequest bounds a request, in bytes; the largest contains a specification.
const MaxRequest = 160 << 10

// streamBuffer is the buffer of a stream to a guest, in bytes, for each direction.
const streamBuffer = 1 << 20

// Socketpair returns two connected stream sockets, both closed on exec.
func Socketpair() (a, b *os.File, err error) {
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

// FileConn turns f, a socket, into a connection, and closes f.
func FileConn(f *os.File) (net.Conn, error) {
	defer f.Close()
	return net.FileConn(f)
}

// Send sends req with files, the first of which is the reply stream.
func Send(conn *net.UnixConn, req *Request, files ...*os.File) error {
	data, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(data) > MaxRequest {
		return sandbox.Errorf(sandbox.Invalid, "request of %d bytes is too large", len(data))
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	return err
}

// Receive receives a request and its files, which the caller closes. When
// the driver has ended, the error is io.EOF or net.ErrClosed. It reads into data,
// of MaxRequest bytes, which the caller reuses. Otherwise these buffers would be
// most of the supervisor's garbage.
func Receive(conn *net.UnixConn, data []byte) (*Request, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*(2+MaxStreams+sandbox.MaxVolumes)))
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
	var req Request
	if err := json.Unmarshal(data[:n], &req); err != nil {
		CloseAll(files)
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

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// MaxStreams bounds the streams that a guest is started with, including the
// driver's own.
const MaxStreams = 4

// SupervisorName is the first argument of the supervisor's process.
const SupervisorName = "glovebox-supervisor"

// LingeringName is the name, as in /proc/PID/comm, of a supervisor whose driver has
// ended.
const LingeringName = "glovebox-linger"

// EarlierSupervisorName is the name in earlier versions. Their servers start the
// program of this version if an update replaced theirs.
const EarlierSupervisorName = "glovebox-maker"

package dockerapi

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
)

// readFrame reads the header of a frame of output, in the form of Docker's API.
func readFrame(r io.Reader) (stderr bool, size int, err error) {
	var header [8]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return false, 0, err
	}
	size = int(binary.BigEndian.Uint32(header[4:]))
	switch header[0] {
	case 1:
		return false, size, nil
	case 2, 3: // 3 is an error of the container engine itself
		return true, size, nil
	}
	return false, 0, fmt.Errorf("the engine sends a stream of kind %d", header[0])
}

// Exec executes a program in a container as root, and returns its standard streams.
// The caller closes them. The error wraps driver.ErrGone if the container does not
// run.
func (e *Engine) Exec(ctx context.Context, name string, args []string) (*stdio.Conn, error) {
	made, err := e.ExecCreate(ctx, name, client.ExecCreateOptions{
		User: "0:0", Cmd: args, WorkingDir: "/",
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, e.ExplainBox(err)
	}
	at, err := e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, e.ExplainBox(err)
	}
	return stdio.New(at.Conn, at.Reader, readFrame), nil
}

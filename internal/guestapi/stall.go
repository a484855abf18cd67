package guestapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// A guest may be hostile and stop reading its connection. All streams of a
// connection share it: while a frame is being written, no other can be, and the
// transport then looks at no context. So each write is bounded, and so is the
// time that a call waits for its turn to write.
const (
	// writeTimeout bounds one write to a guest, of a frame at most. A guest
	// always reads, whatever its programs do. A paused guest does not; but what
	// is written to it meanwhile fits into the buffers of its stream.
	writeTimeout = 10 * time.Second
	// bodyGrace bounds how long the body of an answer may hold its reader after
	// the end of the call's context, and how long it may take to close.
	bodyGrace = 5 * time.Second
)

var errStalled = errors.New("the guest does not read its connection")

// writeBounded writes p to conn. If that takes longer than writeTimeout, it
// closes conn by hangUp. It sets no deadline, which not every stream to a guest
// supports.
func writeBounded(conn net.Conn, p []byte, hangUp func()) (int, error) {
	t := time.AfterFunc(writeTimeout, hangUp)
	n, err := conn.Write(p)
	if !t.Stop() && err != nil {
		err = errStalled
	}
	return n, err
}

// A guardedBody is the body of an answer. Its methods return even if the guest
// does not read: they end the connection, if need be.
type guardedBody struct {
	io.ReadCloser
	ctx    context.Context // of the call
	hangUp func()
}

// guardBody makes the body of resp return soon after the end of ctx.
func guardBody(ctx context.Context, resp *http.Response, hangUp func()) {
	if resp.Body != http.NoBody {
		resp.Body = &guardedBody{resp.Body, ctx, hangUp}
	}
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if b.ctx.Done() == nil {
		return b.ReadCloser.Read(p)
	}
	returned := make(chan struct{})
	stop := context.AfterFunc(b.ctx, func() {
		t := time.NewTimer(bodyGrace)
		defer t.Stop()
		select {
		case <-returned:
		case <-t.C:
			b.hangUp()
		}
	})
	n, err := b.ReadCloser.Read(p)
	stop()
	close(returned)
	return n, err
}

func (b *guardedBody) Close() error {
	t := time.AfterFunc(bodyGrace, b.hangUp)
	defer t.Stop()
	return b.ReadCloser.Close()
}

package guestapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathPorts, followed by a port's number, is a connection to what listens on
// that port of the box's own loopback addresses: what is sent in the request's
// body goes there, and what comes from there is the response's. The end of the
// body closes that half; the end of the response is the end of all. It is ours,
// beyond E2B's protocol, and HTTP/2 only.
const PathPorts = "/ports/"

// MaxPortConns is how many connections to ports the guest has room for on one
// stream from the host: what nobody reads of so many holds up nothing else.
const MaxPortConns = 64

// DialPort connects to a port of the box's loopback address, whatever network
// the box has. ctx bounds the dial alone. The error wraps [sandbox.Unavailable]
// if nothing listens there, [sandbox.Invalid] if there is no such port, and
// [sandbox.Unsupported] if the guest cannot.
func (c *Client) DialPort(ctx context.Context, port int) (*PortConn, error) {
	const op = "dial port"
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	body, send := io.Pipe()
	req, err := newRequest(life, http.MethodPost, PathPorts+strconv.Itoa(port), body, "")
	if err != nil {
		cancel()
		return nil, sandbox.Errorf(sandbox.Internal, op+": %w", err)
	}
	req.ContentLength = -1
	stop := context.AfterFunc(ctx, cancel) // only until it is open
	resp, err := c.do(op, req)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	conn := &PortConn{port: port, send: send, body: resp.Body, cancel: cancel}
	if !stop() {
		err = lost(ctx, op, ctx.Err())
	} else if resp.StatusCode != http.StatusOK {
		err = answered(ctx, op, resp)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// A PortConn is a connection to a port in a box. It has no deadlines.
type PortConn struct {
	port   int
	send   *io.PipeWriter
	body   io.ReadCloser
	cancel context.CancelFunc
}

var _ net.Conn = (*PortConn)(nil)

// Read implements [net.Conn]. An end that was not a proper one is an error.
func (c *PortConn) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &lostError{"read from port", err}
	}
	return n, err
}

// Write implements [net.Conn].
func (c *PortConn) Write(p []byte) (int, error) { return c.send.Write(p) }

// CloseWrite tells the other end that nothing more comes.
func (c *PortConn) CloseWrite() error { return c.send.Close() }

// Close breaks the connection off: what was written last may not arrive, unless
// the other end has answered it.
func (c *PortConn) Close() error {
	c.cancel()
	return errors.Join(c.send.CloseWithError(net.ErrClosed), c.body.Close())
}

// LocalAddr implements [net.Conn].
func (c *PortConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements [net.Conn].
func (c *PortConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.port}
}

// SetDeadline implements [net.Conn].
func (c *PortConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements [net.Conn].
func (c *PortConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements [net.Conn].
func (c *PortConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

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

// PathPorts, followed by a port number, connects to that port on the box's
// loopback address. The request's body goes to the port, and the port's data is
// the response's body. The end of the request's body closes that direction. The
// end of the response ends the connection. The path is ours, beyond E2B's
// protocol, and HTTP/2 only.
const PathPorts = "/ports/"

// MaxPortConns is how many connections to ports the guest can buffer on one
// connection of the host. If so many are not read, they still block no other
// calls.
const MaxPortConns = 64

// DialPort connects to a port on the box's loopback address, whatever network
// the box has. ctx bounds the dial only. The caller closes the connection. The
// error wraps [sandbox.Unavailable] if no program listens, [sandbox.Invalid] if
// the port is not valid, and [sandbox.Unsupported] if the guest cannot connect
// to ports.
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
	stop := context.AfterFunc(ctx, cancel) // ctx bounds only the opening
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

// A PortConn is a connection to a port in a box. It does not support deadlines.
type PortConn struct {
	port   int
	send   *io.PipeWriter
	body   io.ReadCloser
	cancel context.CancelFunc
}

var _ net.Conn = (*PortConn)(nil)

// Read implements [net.Conn]. If the connection breaks, the error is of kind
// Unavailable.
func (c *PortConn) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &lostError{"read from port", err}
	}
	return n, err
}

// Write implements [net.Conn].
func (c *PortConn) Write(p []byte) (int, error) { return c.send.Write(p) }

// CloseWrite closes the direction to the port.
func (c *PortConn) CloseWrite() error { return c.send.Close() }

// Close aborts the connection. The last written data may be lost, unless the
// other end has answered it.
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

// SetDeadline returns [os.ErrNoDeadline].
func (c *PortConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline returns [os.ErrNoDeadline].
func (c *PortConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline returns [os.ErrNoDeadline].
func (c *PortConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

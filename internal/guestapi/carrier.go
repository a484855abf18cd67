package guestapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathStreams opens a stream to the guest inside a request. The request's body
// and the response's body are the two directions of a new connection. It is
// ours, beyond E2B's protocol, and HTTP/2 only.
const PathStreams = "/streams"

// A Carrier opens any number of streams to a guest over a single stream. It is
// for drivers whose streams are expensive, such as an exec of the container
// engine. Its methods are safe for concurrent use. The caller closes it.
type Carrier struct {
	conn      net.Conn
	transport *http.Transport
	done      chan struct{}
	closeOnce sync.Once
}

const (
	// carrierSilence is the interval of pings on a silent stream. Proxies in
	// between drop a silent stream, some after a minute.
	carrierSilence = 30 * time.Second
	// carrierPatience bounds the answer to a ping. A guest whose programs use
	// all of the processor time must not lose its connection.
	carrierPatience = time.Hour
)

// NewCarrier returns a Carrier over conn, a stream to a guest on which no data
// was sent yet. It takes conn over.
func NewCarrier(conn net.Conn) *Carrier {
	c := &Carrier{done: make(chan struct{})}
	c.conn = &carrierConn{Conn: conn, c: c}
	taken := make(chan net.Conn, 1)
	taken <- c.conn
	c.transport = &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case conn := <-taken:
				return conn, nil
			default:
				c.Close()
				return nil, errCarrierEnded
			}
		},
		Protocols:          new(http.Protocols),
		DisableCompression: true,
		MaxConnsPerHost:    1,

		MaxResponseHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow,
			MaxReadFrameSize:          frameSize,
			SendPingTimeout:           carrierSilence,
			PingTimeout:               carrierPatience,
		},
	}
	c.transport.Protocols.SetUnencryptedHTTP2(true)
	return c
}

var errCarrierEnded = errors.New("the stream to the guest has ended")

// carrierConn reports its end to its carrier. It ends if the guest does not read
// it.
type carrierConn struct {
	net.Conn
	c *Carrier
}

func (cc *carrierConn) Read(p []byte) (int, error) {
	n, err := cc.Conn.Read(p)
	if err != nil {
		cc.c.ended()
	}
	return n, err
}

func (cc *carrierConn) Write(p []byte) (int, error) {
	return writeBounded(cc.Conn, p, func() { cc.Close() })
}

func (cc *carrierConn) Close() error {
	cc.c.ended()
	return cc.Conn.Close()
}

func (c *Carrier) ended() { c.closeOnce.Do(func() { close(c.done) }) }

// Done returns a channel that is closed when the carrying stream has ended. All
// streams over it have ended then, too.
func (c *Carrier) Done() <-chan struct{} { return c.done }

// Close closes the carrying stream, and so all streams over it.
func (c *Carrier) Close() error {
	err := c.conn.Close()
	c.transport.CloseIdleConnections()
	return err
}

// Dial opens a stream to the guest, which the caller closes. The error wraps
// [sandbox.Unavailable] if the guest does not answer, or if the carrying stream
// has ended.
func (c *Carrier) Dial(ctx context.Context) (net.Conn, error) {
	const op = "open stream to guest"
	near, far := net.Pipe()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	req, err := http.NewRequestWithContext(life, http.MethodPost, "http://guest"+PathStreams, far)
	if err != nil {
		cancel()
		return nil, sandbox.Errorf(sandbox.Internal, op+": %w", err)
	}
	req.ContentLength = -1
	req.Header.Set(HeaderExtensions, "1")  // not a client of E2B's protocol
	stop := context.AfterFunc(ctx, cancel) // ctx bounds only the opening
	resp, err := c.transport.RoundTrip(req)
	if err == nil {
		guardBody(life, resp, func() { c.Close() })
		resp.Header, resp.Trailer = nil, nil // the stream would hold them
	}
	if !stop() && err == nil {
		resp.Body.Close()
		err = ctx.Err()
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	if err != nil {
		cancel()
		near.Close()
		return nil, lost(ctx, op, err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(far, resp.Body) // the reader sees how the stream ended
		far.Close()
		resp.Body.Close()
	}()
	return near, nil
}

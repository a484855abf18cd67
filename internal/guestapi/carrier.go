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

// PathStreams opens a stream to the guest within a stream to it: what is sent
// in the request's body, and comes in the response's, is a connection of its
// own. It is ours, beyond E2B's protocol, and HTTP/2 only.
const PathStreams = "/streams"

// A Carrier opens any number of streams to a guest over a single one. It is for
// drivers whose streams are dear: where each is an exec by the engine, say. Its
// methods are safe for concurrent use.
type Carrier struct {
	conn      net.Conn
	transport *http.Transport
	done      chan struct{}
	closeOnce sync.Once
}

const (
	// carrierSilence is the longest time in which nothing is said: what stands
	// between takes a silent stream for a dead one, after a minute in some cases.
	carrierSilence = 30 * time.Second
	// carrierPatience is how long a guest may take to answer. One whose programs
	// leave it no time is not to be lost for that.
	carrierPatience = time.Hour
)

// NewCarrier returns a Carrier over conn, a stream to a guest on which nothing
// was said yet. It takes conn over.
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

// carrierConn tells its carrier when it ends.
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

func (cc *carrierConn) Close() error {
	cc.c.ended()
	return cc.Conn.Close()
}

func (c *Carrier) ended() { c.closeOnce.Do(func() { close(c.done) }) }

// Done is closed when the stream that carries has ended, and with it all that
// it carried.
func (c *Carrier) Done() <-chan struct{} { return c.done }

// Close closes the stream that carries, and with it all that it carries.
func (c *Carrier) Close() error {
	err := c.conn.Close()
	c.transport.CloseIdleConnections()
	return err
}

// Dial opens a stream to the guest. It wraps [sandbox.Unavailable] if the guest
// does not answer, or the stream that carries has ended.
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
	stop := context.AfterFunc(ctx, cancel) // only until it is open
	resp, err := c.transport.RoundTrip(req)
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
		_, _ = io.Copy(far, resp.Body) // how it ended, the connection above sees
		far.Close()
		resp.Body.Close()
	}()
	return near, nil
}

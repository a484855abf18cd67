package guestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/briefmap"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// maxDial bounds one dial. A dial continues after its call has given up, so
	// that the next call finds a connection.
	maxDial = time.Minute
	// streamWindow bounds the data of a stream that the guest sends ahead of its
	// reader. So it bounds the memory of a stream that is not read.
	streamWindow = 1 << 20
	// frameSize is large enough for a data event in one or two frames.
	frameSize = 256 << 10
	// maxHeaders bounds the headers of an answer, in bytes. The transport's own
	// bound is 10 MiB, which take several times as much memory.
	maxHeaders = 64 << 10
)

// A Dialer opens a stream to a guest, as driver.Box.Dial does. The caller closes
// the stream.
type Dialer func(context.Context) (net.Conn, error)

// NewClient returns a client that reaches its guest by dial. It opens
// connections when they are needed and shares them between calls. The caller
// closes it.
func NewClient(dial Dialer) *Client {
	return &Client{
		dial:   dial,
		closed: make(chan struct{}),
	}
}

// newTransport returns a transport of c.
func (c *Client) newTransport() *http.Transport {
	t := &http.Transport{
		DialContext:        c.dialContext,
		Protocols:          new(http.Protocols),
		DisableCompression: true,
		// One connection is dialled at a time, and all waiting calls share it.
		// The transport opens another when the guest's limit on streams is
		// reached.
		MaxConnsPerHost:        1,
		MaxResponseHeaderBytes: maxHeaders,
		// A guest may be paused for any time. So there are no pings, and no
		// bound on the silence of a connection.
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow,
			MaxReadFrameSize:          frameSize,
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// A Client speaks to one guest. Its methods are safe for concurrent use. Their
// errors wrap a [sandbox.Kind]: the kind of the guest's answer, or Unavailable
// if the guest was not reached or the connection broke.
type Client struct {
	dial      Dialer
	closed    chan struct{}
	closeOnce sync.Once

	mu    sync.Mutex
	conns briefmap.Map[*clientConn, struct{}]
	// transport is nil while there is no connection: a server has a client for each of
	// its sandboxes, most of which may be on the disk, and a transport has 7 KB.
	transport *http.Transport
}

// clientConn is a connection that Close closes, and that ends if the guest does
// not read it.
type clientConn struct {
	net.Conn
	c *Client
}

func (cc *clientConn) Close() error {
	cc.c.mu.Lock()
	cc.c.conns.Delete(cc)
	if len(cc.c.conns) == 0 {
		// Calls that wait for a connection go on with this transport. If it dials, the
		// next call dials, too.
		cc.c.transport = nil
	}
	cc.c.mu.Unlock()
	return cc.Conn.Close()
}

func (cc *clientConn) Write(p []byte) (int, error) {
	return writeBounded(cc.Conn, p, func() { cc.Close() })
}

var errClosed = errors.New("client is closed")

func (c *Client) dialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDial)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-done:
		}
	}()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	cc := &clientConn{Conn: conn, c: c}
	c.mu.Lock()
	c.conns.Set(cc, struct{}{})
	c.mu.Unlock()
	select {
	case <-c.closed: // Close may have run before the connection was in the set
		cc.Close()
		return nil, errClosed
	default:
		return cc, nil
	}
}

// Close closes the client's connections, and so the streams on them.
func (c *Client) Close() {
	c.closeOnce.Do(func() { close(c.closed) })
	c.hangUp()
}

// via returns the transport for a call.
func (c *Client) via() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == nil {
		c.transport = c.newTransport()
	}
	return c.transport
}

// hangUp closes the connections. The next call opens another one.
func (c *Client) hangUp() {
	c.mu.Lock()
	conns := make([]*clientConn, 0, len(c.conns))
	for cc := range c.conns {
		conns = append(conns, cc)
	}
	c.mu.Unlock()
	for _, cc := range conns {
		cc.Close()
	}
}

// Health returns nil if the guest answers.
func (c *Client) Health(ctx context.Context) error {
	const op = "check guest"
	req, err := newRequest(ctx, http.MethodGet, PathHealth, nil, "")
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, op+": %w", err)
	}
	resp, err := c.do(op, req)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if resp.StatusCode/100 != 2 {
		return sandbox.Errorf(sandbox.Unavailable, op+": HTTP status %d", resp.StatusCode)
	}
	return nil
}

// newRequest makes a request to the guest. The host in its URL has no meaning,
// because the dialer ignores it.
func newRequest(ctx context.Context, method, target string, body io.Reader, user string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://guest"+target, body)
	if err != nil {
		return nil, err
	}
	if user == "" {
		user = sandbox.User
	}
	req.SetBasicAuth(user, "")
	req.Header.Set(HeaderExtensions, "1")
	return req, nil
}

// do sends req. An error means that the guest was not reached or the connection
// broke. Of the headers of the answer, do keeps those that this package reads:
// an open stream would hold the others.
func (c *Client) do(op string, req *http.Request) (*http.Response, error) {
	resp, err := c.send(op, req)
	if err != nil {
		return nil, err
	}
	span := resp.Header.Get(headerRange)
	resp.Header, resp.Trailer = http.Header{}, nil
	if span != "" {
		resp.Header.Set(headerRange, strings.Clone(span))
	}
	return resp, nil
}

const headerRange = "Content-Range"

func (c *Client) send(op string, req *http.Request) (*http.Response, error) {
	select {
	case <-c.closed:
		return nil, &lostError{op, errClosed}
	default:
	}
	resp, err := c.via().RoundTrip(req)
	if err != nil {
		return nil, lost(req.Context(), op, err)
	}
	guardBody(req.Context(), resp, c.hangUp)
	return resp, nil
}

// RoundTrip sends req to the guest, whatever its host is. It returns the answer
// unchecked and unbounded. The caller closes the answer's body. The error is of
// kind Unavailable.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	out := *req
	u := *req.URL
	u.Scheme, u.Host = "http", "guest"
	out.URL, out.Host, out.RequestURI = &u, "", ""
	return c.send("forward request", &out)
}

// closeBody closes the body of a response. It reads a short body first, so that
// the stream ends without a reset.
func closeBody(resp *http.Response) { drain(resp.Body, 4<<10) }

// call makes a unary call. It encodes in as the request, and decodes the reply
// to out unless out is nil.
func (c *Client) call(ctx context.Context, op, procedure, user string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%s: encode request: %w", op, err)
	}
	if len(body) > MaxUnaryRequest {
		return sandbox.Errorf(sandbox.Invalid, "%s: request of %d bytes exceeds %d", op, len(body), MaxUnaryRequest)
	}
	req, err := newRequest(ctx, http.MethodPost, procedure, bytes.NewReader(body), user)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	req.Header.Set("Content-Type", ContentTypeUnary)
	req.Header.Set(HeaderProtocolVersion, "1")
	resp, err := c.do(op, req)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if resp.StatusCode != http.StatusOK {
		return answered(ctx, op, resp)
	}
	if out == nil {
		return nil
	}
	reply, err := readBounded(resp.Body, MaxUnaryResponse)
	if err != nil {
		return lost(ctx, op, err)
	}
	if err := json.Unmarshal(reply, out); err != nil {
		return lost(ctx, op, fmt.Errorf("decode reply: %w", err))
	}
	return nil
}

// readBounded reads all of r. It returns an error if r is longer than limit.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("reply exceeds %d bytes", limit)
	}
	return b, nil
}

// answered returns the error in a response of the guest. It is a Connect error,
// or an error of PathFiles, whose code is an HTTP status.
func answered(ctx context.Context, op string, resp *http.Response) error {
	body, err := readBounded(resp.Body, 64<<10)
	if err != nil {
		return lost(ctx, op, err)
	}
	var e struct {
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &e) != nil {
		return sandbox.Errorf(kindOfStatus(resp.StatusCode), "%s: %w", op, &statusError{resp.StatusCode})
	}
	kind := kindOfStatus(resp.StatusCode)
	var code Code
	if json.Unmarshal(e.Code, &code) == nil {
		kind = code.Kind()
	}
	text := cleanText(e.Message)
	if text == "" {
		text = fmt.Sprintf("HTTP status %d", resp.StatusCode)
	}
	return &sandbox.Error{Kind: kind, Op: op, Err: errors.New(text)}
}

func kindOfStatus(status int) sandbox.Kind {
	switch status {
	case http.StatusNotFound:
		return sandbox.NotFound
	case http.StatusConflict:
		return sandbox.Conflict
	case http.StatusUnauthorized:
		return sandbox.Unauthenticated
	case http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return sandbox.Exhausted
	case http.StatusNotImplemented:
		return sandbox.Unsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return sandbox.Unavailable
	}
	if status/100 == 4 {
		return sandbox.Invalid
	}
	return sandbox.Internal
}

// lost returns the error of a guest that was not reached, broke the connection,
// or sent a malformed answer.
func lost(ctx context.Context, op string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return &lostError{op, err}
}

// lostError is of kind Unavailable, whatever the kind of its cause is. Otherwise
// a box that is not found would read like a file that is not found.
type lostError struct {
	op  string
	err error
}

func (e *lostError) Error() string { return e.op + ": " + cleanText(e.err.Error()) }
func (e *lostError) Unwrap() error { return e.err }

func (e *lostError) Is(target error) bool { return target == sandbox.Unavailable }

func (e *lostError) As(target any) bool {
	if k, ok := target.(*sandbox.Kind); ok {
		*k = sandbox.Unavailable
		return true
	}
	return false
}

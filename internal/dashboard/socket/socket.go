// Package socket is the server side of the WebSocket protocol (RFC 6455), as far as a
// terminal in a browser needs it: no extensions, and no message larger than a bound.
//
// [Accept] answers a handshake and takes the connection over; the caller closes the
// [Conn]. One goroutine may read while others write.
package socket

import (
	"bufio"
	"crypto/sha1" // the handshake's own hash, which protects nothing
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Kind is the kind of a message.
type Kind byte

// The kinds of messages that applications exchange.
const (
	Text   Kind = 1
	Binary Kind = 2
)

// The other operations of frames.
const (
	opMore  = 0
	opClose = 8
	opPing  = 9
	opPong  = 10
)

const (
	// MaxMessage bounds a message from the client, in bytes.
	MaxMessage = 64 << 10
	// writeTime bounds how long a write may take: a client that does not read is gone.
	writeTime = 30 * time.Second
	// closeTime bounds the last write.
	closeTime = 5 * time.Second
	// The server sends a ping every pingEvery, which clients answer. A client of which
	// nothing arrives for silence is gone.
	pingEvery = 20 * time.Second
	silence   = 45 * time.Second

	guid    = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	version = "13"
)

// A Conn is a connection after the handshake.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader

	writing chan struct{} // has an element while a frame is written

	closing sync.Once
	closed  chan struct{} // ends the pings
}

// Accept answers the handshake of a page of the same origin. The error wraps
// [sandbox.Forbidden] for a page of another origin, and [sandbox.Invalid] for a request
// that is no handshake; then nothing was sent.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	if origins := r.Header.Values("Origin"); len(origins) != 1 || !sameHost(origins[0], r.Host) {
		return nil, sandbox.Errorf(sandbox.Forbidden, "pages of other origins may not open a terminal")
	}
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	if err != nil || len(key) != 16 || !hasToken(r.Header, "Upgrade", "websocket") || !hasToken(r.Header, "Connection", "upgrade") ||
		r.Header.Get("Sec-WebSocket-Version") != version || r.Method != http.MethodGet {
		return nil, sandbox.Errorf(sandbox.Invalid, "the request is no handshake of a WebSocket")
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + guid))
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "this connection cannot become a WebSocket: %w", err)
	}
	c := &Conn{conn: conn, r: rw.Reader, writing: make(chan struct{}, 1), closed: make(chan struct{})}
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
	if err := c.write([]byte(answer)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go c.ping()
	return c, nil
}

// ping sends pings until the connection ends.
func (c *Conn) ping() {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-t.C:
			if err := c.send(opPing, nil); err != nil {
				return // Read finds it, too
			}
		}
	}
}

// sameHost reports whether an origin has the host and port of a request.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

func hasToken(h http.Header, name, token string) bool {
	for _, value := range h.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// Read returns the next message. It answers pings. The error is [io.EOF] when the client
// closes the connection, which Close answers. It wraps [os.ErrDeadlineExceeded] if the
// client is silent for 45 seconds and answers no ping, and [sandbox.Invalid] if the
// client breaks the protocol.
func (c *Conn) Read() (kind Kind, message []byte, err error) {
	for {
		op, last, data, err := c.readFrame()
		if err != nil {
			return 0, nil, err
		}
		switch op {
		case opPing:
			if err := c.send(opPong, data); err != nil {
				return 0, nil, err
			}
			continue
		case opPong:
			continue
		case opClose:
			return 0, nil, io.EOF
		case byte(Text), byte(Binary):
			if kind != 0 {
				return 0, nil, errProtocol
			}
			kind = Kind(op)
		case opMore:
			if kind == 0 {
				return 0, nil, errProtocol
			}
		default:
			return 0, nil, errProtocol
		}
		if len(message)+len(data) > MaxMessage {
			return 0, nil, errLarge
		}
		if message = append(message, data...); last {
			return kind, message, nil
		}
	}
}

var (
	errProtocol = sandbox.Errorf(sandbox.Invalid, "the client does not follow the protocol of WebSockets")
	errLarge    = sandbox.Errorf(sandbox.Invalid, "the message is larger than 64 KiB")
)

// readFrame reads one frame, which the client has masked.
func (c *Conn) readFrame() (op byte, last bool, data []byte, err error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, false, nil, err
	}
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, false, nil, err
	}
	op, last = head[0]&15, head[0]&128 != 0
	if head[0]&0x70 != 0 || head[1]&128 == 0 {
		return 0, false, nil, errProtocol
	}
	size := uint64(head[1] & 127)
	if op >= opClose && (size > 125 || !last) {
		return 0, false, nil, errProtocol
	}
	switch size {
	case 126:
		var n [2]byte
		if _, err := io.ReadFull(c.r, n[:]); err != nil {
			return 0, false, nil, err
		}
		size = uint64(binary.BigEndian.Uint16(n[:]))
	case 127:
		var n [8]byte
		if _, err := io.ReadFull(c.r, n[:]); err != nil {
			return 0, false, nil, err
		}
		size = binary.BigEndian.Uint64(n[:])
	}
	if size > MaxMessage {
		return 0, false, nil, errLarge
	}
	var mask [4]byte
	if _, err := io.ReadFull(c.r, mask[:]); err != nil {
		return 0, false, nil, err
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(c.r, data); err != nil {
		return 0, false, nil, err
	}
	for i := range data {
		data[i] ^= mask[i%4]
	}
	return op, last, data, nil
}

// Write sends a message.
func (c *Conn) Write(kind Kind, message []byte) error { return c.send(byte(kind), message) }

func (c *Conn) send(op byte, data []byte) error {
	frame := []byte{128 | op}
	switch n := len(data); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	return c.write(append(frame, data...))
}

func (c *Conn) write(data []byte) error { return c.writeWithin(writeTime, data) }

func (c *Conn) writeWithin(d time.Duration, data []byte) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	if err := c.conn.SetWriteDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	_, err := c.conn.Write(data)
	return err
}

// Close ends the connection, also a Read or a Write in progress. It takes at most ten
// seconds for a client that does not read.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		// What is being written has no more time than the last frame, 1000: normal. The
		// client may be gone.
		_ = c.conn.SetWriteDeadline(time.Now().Add(closeTime))
		_ = c.writeWithin(closeTime, []byte{128 | opClose, 2, 0x03, 0xe8})
	})
	return c.conn.Close()
}

package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// A hello is what a TLS client says first, in the clear.
type hello struct {
	serverName string // in lower case; empty if it says none
	encrypted  bool   // there is another name inside, which is hidden
	alpn       []string
}

// maxHello bounds a client's hello, in bytes as they come.
const maxHello = 64 << 10

// extensionECH is TLS's extension for an encrypted hello. Clients that have
// nothing to hide send it too, filled with noise: nobody can tell the two apart.
const extensionECH = 0xfe0d

var (
	errHello      = errors.New("not a TLS client's hello")
	errHelloTaken = errors.New("hello taken")
)

// readHello reads a client's hello from r and returns it with all that was
// read, some of which may come after it.
func readHello(r io.Reader) (hello, []byte, error) {
	var raw bytes.Buffer
	var h hello
	found := false
	// What a server would make of it is what counts, so a server reads it: one
	// that stops there, and whose answers go nowhere.
	conn := &helloConn{r: io.TeeReader(io.LimitReader(r, maxHello), &raw)}
	server := tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		found = true
		h.serverName = lowerASCII(info.ServerName)
		h.encrypted = slices.Contains(info.Extensions, extensionECH)
		h.alpn = info.SupportedProtos
		return nil, errHelloTaken
	}})
	if err := server.Handshake(); !found {
		if conn.err != nil && conn.err != io.EOF {
			return h, raw.Bytes(), conn.err
		}
		return h, raw.Bytes(), errors.Join(errHello, err)
	}
	return h, raw.Bytes(), nil
}

func lowerASCII(s string) string { return string(bytes.ToLower([]byte(s))) }

// helloConn is a connection that can only be read.
type helloConn struct {
	r   io.Reader
	err error // of the last read
}

func (c *helloConn) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.err = err
	return n, err
}
func (c *helloConn) Write(b []byte) (int, error)        { return len(b), nil }
func (c *helloConn) Close() error                       { return nil }
func (c *helloConn) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (c *helloConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (c *helloConn) SetDeadline(time.Time) error        { return nil }
func (c *helloConn) SetReadDeadline(t time.Time) error  { return nil }
func (c *helloConn) SetWriteDeadline(t time.Time) error { return nil }

// alertUnrecognizedName is a TLS record that tells a client that its server
// name is not served.
var alertUnrecognizedName = []byte{21, 3, 3, 0, 2, 2, 112}

// Types of TLS records and of messages in them.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordApplicationData  = 23
	recordHeartbeat        = 24
	messageClientHello     = 1
	recordHeader           = 5
	maxRecord              = 16<<10 + 2048
	// watchHello is how much is read of a connection in wait for a second
	// hello: no server takes more data before one.
	watchHello = 256 << 10
	// maxAlerts bounds the alerts after a first hello. Servers pass over a few
	// warnings, and end the connection at more.
	maxAlerts = 16
)

// errSecondHello says that a client changed the server's name.
var errSecondHello = errors.New("a second hello names another server")

// copyRecords carries TLS records, of which the first is a hello that names
// serverName, from r to w until nothing can follow that is a hello again. A
// server may ask for a second one, and might then believe what it says. Servers
// pass over some records before it, so only a handshake message ends the watch.
func copyRecords(ctx context.Context, w io.Writer, r io.Reader, serverName string) error {
	first, changed, alerts := true, false, 0
	var inHello int // bytes of the first hello that are still to come
	for carried := 0; carried < watchHello && ctx.Err() == nil; {
		record := make([]byte, recordHeader, 2048)
		if _, err := io.ReadFull(r, record); err != nil {
			return err
		}
		size := int(binary.BigEndian.Uint16(record[3:5]))
		if size > maxRecord {
			return errHello
		}
		record = slices.Grow(record, size)[:recordHeader+size]
		if _, err := io.ReadFull(r, record[recordHeader:]); err != nil {
			return err
		}
		carried += len(record)
		body := record[recordHeader:]
		last := false
		switch {
		case record[0] != recordHandshake && first:
			// Some servers pass over what comes before a hello. What follows
			// it would not be looked at.
			return errHello
		case record[0] == recordHandshake && len(body) == 0:
			return errHello // TLS forbids it, and some servers pass over it
		case record[0] == recordHandshake && first:
			// It was read before, and is what it says it is.
			if inHello == 0 && len(body) >= 4 {
				inHello = 4 + int(body[1])<<16 + int(body[2])<<8 + int(body[3])
			} else if inHello == 0 {
				return errHello
			}
			inHello -= len(body)
			if inHello < 0 {
				return errHello
			}
			first = inHello > 0
		case record[0] == recordHandshake:
			if body[0] == messageClientHello && (!changed || mayBeHello(body)) {
				h, raw, err := readHello(io.MultiReader(bytes.NewReader(record), r))
				if err != nil || h.encrypted || h.serverName != serverName {
					return errSecondHello
				}
				record = raw
			}
			last = true
		case record[0] == recordChangeCipherSpec:
			changed = true
		case record[0] == recordApplicationData:
		case record[0] == recordAlert && alerts < maxAlerts:
			alerts++
		default:
			return errHello
		}
		if _, err := w.Write(record); err != nil {
			return err
		}
		if last {
			break
		}
	}
	return nil
}

// longestHello is the most that servers take for a hello.
const longestHello = 1 << 18

// mayBeHello reports whether a handshake record may begin with a hello in the clear.
// A client that resumes a session of TLS 1.2 sends its Finished encrypted after a
// ChangeCipherSpec, and one in 256 has the first byte of a hello. Of those the
// length that each claims tells 63 in 64 apart.
func mayBeHello(body []byte) bool {
	if len(body) < 4 {
		return true // the rest comes in another record
	}
	return int(body[1])<<16+int(body[2])<<8+int(body[3]) <= longestHello
}

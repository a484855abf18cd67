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

// A hello is the ClientHello of a TLS client, which is not encrypted.
type hello struct {
	serverName string // in lower case; empty if there is none
	encrypted  bool   // a second, encrypted hello hides another name
	alpn       []string
}

// maxHello bounds a client's hello, in bytes on the wire.
const maxHello = 64 << 10

// extensionECH is TLS's extension for an encrypted hello. Other clients send it
// too, filled with random bytes. The two cannot be distinguished.
const extensionECH = 0xfe0d

var (
	errHello      = errors.New("not the hello of a TLS client")
	errHelloTaken = errors.New("hello taken")
)

// readHello reads a client's hello from r. It also returns all bytes that it
// read, which may include bytes after the hello.
func readHello(r io.Reader) (hello, []byte, error) {
	var raw bytes.Buffer
	var h hello
	found := false
	// A real server parses the hello, so that the gateway reads it as servers do.
	// This server stops after the hello, and its answers are discarded.
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

// A helloConn is a connection that can only be read.
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

// alertUnrecognizedName is a TLS record: the alert that the server name is not
// served.
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
	// watchHello is the number of bytes that the gateway searches for a second
	// hello. No server accepts more data before one.
	watchHello = 256 << 10
	// maxAlerts bounds the alerts after a first hello. Servers ignore a few
	// warnings, and end the connection if there are more.
	maxAlerts = 16
)

// errSecondHello means that the client changed the server name.
var errSecondHello = errors.New("a second hello names another server")

// copyRecords copies TLS records from r to w until no further hello can follow.
// The first record is a hello that names serverName. A server may ask for a
// second hello and use the server name in it. Servers ignore some records before
// the second hello, so only a handshake message ends the check.
func copyRecords(ctx context.Context, w io.Writer, r io.Reader, serverName string) error {
	first, changed, alerts := true, false, 0
	var inHello int // bytes of the first hello that have not come yet
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
			// Some servers ignore records before a hello. The gateway would not
			// check the hello that follows.
			return errHello
		case record[0] == recordHandshake && len(body) == 0:
			return errHello // TLS forbids an empty record, but some servers ignore it
		case record[0] == recordHandshake && first:
			// readHello has already checked this hello. Only its length is
			// followed here.
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

// longestHello is the length of the longest hello that servers accept.
const longestHello = 1 << 18

// mayBeHello reports whether a handshake record may begin with an unencrypted
// hello. A client that resumes a TLS 1.2 session sends its Finished encrypted,
// after a ChangeCipherSpec. The first byte of one in 256 equals the first byte of
// a hello. The length field rules out 63 in 64 of these.
func mayBeHello(body []byte) bool {
	if len(body) < 4 {
		return true // the length field is in the next record
	}
	return int(body[1])<<16+int(body[2])<<8+int(body[3]) <= longestHello
}

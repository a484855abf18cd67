package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A kind classifies the first bytes that a client sends.
type kind int

const (
	unclear kind = iota // more bytes are needed
	opaque              // neither TLS nor HTTP: the client chose its server by the address
	hiding              // HTTP or TLS may follow, but the gateway cannot inspect it
	isTLS
	isHTTP
)

// Bounds on the bytes and the time until a client's protocol is known.
const (
	maxFirstLine = 8 << 10
	clearWithin  = 30 * time.Second
)

// classify returns the kind of b, the first bytes of a client.
//
// HTTP servers differ in the malformed requests that they accept. Examples are
// blanks and line ends before the request, methods of any length, and any blank
// as a separator. So classify returns isHTTP for every text with "HTTP/" in its
// first line. It does so, too, if the second word looks like a request target.
func classify(b []byte) kind {
	if len(b) == 0 {
		return unclear
	}
	if b[0] >= recordChangeCipherSpec && b[0] <= recordHeartbeat {
		return classifyTLS(b)
	}
	if b[0] >= 0x80 {
		return classifyBinary(b)
	}
	head := b[:min(len(b), maxFirstLine)]
	line := bytes.TrimLeft(head, " \t\n\v\f\r")
	other := opaque
	if len(line) < len(head) {
		other = hiding // only HTTP servers skip leading blanks
	}
	if len(line) > 0 && (line[0] < ' ' || line[0] >= 0x7f) {
		return other
	}
	end := bytes.IndexAny(line, "\n\x00") // NUL is not text
	if end >= 0 {
		line = line[:end]
	}
	upper := bytes.ToUpper(line)
	switch {
	case bytes.Contains(upper, []byte("HTTP/")), hasTarget(line):
		return isHTTP
	case bytes.HasPrefix(upper, []byte("PROXY ")):
		return hiding // the preamble of the PROXY protocol, before the actual protocol
	case end >= 0:
		return other
	case len(head) == maxFirstLine:
		return isHTTP // the HTTP server checks it
	}
	return unclear
}

// classifyTLS classifies input that begins like a TLS record.
func classifyTLS(b []byte) kind {
	switch {
	case len(b) < 2:
		return unclear
	case b[1] == 3:
		return isTLS
	}
	return opaque
}

// classifyBinary classifies input whose first byte occurs in no text. A hello in
// the SSL 2 format has no server name, so it is hiding.
func classifyBinary(b []byte) kind {
	const clientHello, newestVersion = 1, 3
	switch {
	case len(b) < 3 || b[2] == clientHello && len(b) < 4:
		return unclear
	case b[2] == clientHello && b[3] <= newestVersion:
		return hiding
	}
	return opaque
}

// hasTarget reports whether the second word of a line may be a request target: a
// path, a URL, or "*".
func hasTarget(line []byte) bool {
	method := 0
	for method < len(line) && isToken(line[method]) {
		method++
	}
	target := line[method:]
	for len(target) > 0 && !isToken(target[0]) && (target[0] <= ' ' || target[0] >= 0x7f) {
		target = target[1:]
	}
	if method == 0 || len(target) == 0 || len(target) == len(line)-method {
		return false
	}
	return target[0] == '/' || target[0] == '*' || len(target) >= 4 && bytes.EqualFold(target[:4], []byte("http"))
}

// isToken reports whether c can be in an HTTP method.
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// A rewound connection first returns the bytes that were already read from it.
type rewound struct {
	net.Conn
	r io.Reader
}

func rewind(c net.Conn, head []byte) *rewound {
	return &rewound{Conn: c, r: io.MultiReader(bytes.NewReader(head), c)}
}

func (c *rewound) Read(b []byte) (int, error) { return c.r.Read(b) }
func (c *rewound) CloseWrite() error          { return closeWrite(c.Conn) }

// splice copies bytes in both directions until both sides have ended, or either
// fails.
func (f *flow) splice(guest net.Conn, up *upstream) {
	var ways sync.WaitGroup
	ways.Go(func() { f.copy(up, guest) })
	ways.Go(func() { f.copy(guest, up) })
	ways.Wait()
}

// buffers holds the buffers for copying.
var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// copy copies bytes in one direction, then closes the write side of dst.
func (f *flow) copy(dst, src net.Conn) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(writer{dst}, reader{src}, *buf)
	if err != nil || closeWrite(dst) != nil {
		f.cancel() // if one direction is broken, the other is too
	}
}

// reader and writer hide ReadFrom and WriteTo from io.Copy.
type reader struct{ io.Reader }
type writer struct{ io.Writer }

// check copies bytes in both directions once the client's first bytes agree with
// the names that the connection was allowed for. Meanwhile it forwards the
// server's bytes, because in some protocols the server speaks first.
func (f *flow) check(guest net.Conn, up *upstream) {
	down := make(chan bool, 1) // whether the server sent anything
	go func() {
		down <- f.greet(guest, up)
	}()
	head, k := f.firstWords(guest)
	rest := rewind(guest, head)
	switch k {
	case isHTTP:
		if len(f.names) == 0 && len(f.clearNames) == 0 { // every host is allowed at this address
			f.copy(up, rest)
			break
		}
		// From here on the gateway parses each request and each response.
		_ = up.SetReadDeadline(time.Unix(1, 0))
		if <-down {
			f.stop(sandbox.BlockedHTTPHost)
			return
		}
		_ = up.SetReadDeadline(time.Time{})
		f.serveHTTP(rest, up)
		return
	case isTLS:
		h, raw, err := f.hello(rest)
		if err == nil && slices.Contains(f.secretNames, h.serverName) && f.in.lost(h.serverName, f.dst.Port()) {
			f.named(h.serverName)
			_, _ = guest.Write(alertUnrecognizedName)
			f.stop(sandbox.BlockedLost)
			return
		}
		if err == nil && f.terminates(h) {
			_ = up.SetReadDeadline(time.Unix(1, 0))
			if <-down { // no TLS server speaks first
				f.stop(sandbox.BlockedServerName)
				return
			}
			_ = up.SetReadDeadline(time.Time{})
			f.serveSecrets(rewind(rest, raw), up, h)
			return
		}
		if !f.checkTLS(rest, up, h, raw, err) {
			f.cancel()
		}
	case opaque, hiding:
		if len(f.names) > 0 && len(head) > 0 && (k == hiding || !f.passOpaque()) {
			f.stop(sandbox.BlockedOpaque)
			break
		}
		f.copy(up, rest)
	default: // the kind did not become clear
		switch {
		case len(head) == 0:
			f.cancel() // it ended before it sent anything
		case len(f.names) == 0:
			f.copy(up, rest)
		default:
			f.stop(sandbox.BlockedOpaque)
		}
	}
	<-down
}

// passOpaque reports whether f may carry a protocol that does not name its host.
// After it returns true, an HTTP or TLS server at the other end blocks f. The
// policy may have changed since f was opened. There is no race:
// [Gateway.SetNetwork] stores the policy before it loads opaque, and passOpaque
// stores opaque before it loads the policy.
func (f *flow) passOpaque() bool {
	f.opaque.Store(true)
	d := f.g.policy.Load().decide(f.dst, f.names, f.g.host())
	return d.blocked == "" && (len(d.names) == 0 || d.opaque)
}

// unmasks reports whether b, the first bytes of a server, belongs to HTTP or TLS.
// If the client's protocol was unknown, the client has hidden its request from
// classify, and the server has accepted the request nevertheless.
func unmasks(b []byte) bool {
	return bytes.HasPrefix(b, []byte("HTTP/")) ||
		len(b) > 1 && (b[0] == recordHandshake || b[0] == recordAlert) && b[1] == 3
}

// A firstAnswer checks the first bytes that a server sends.
type firstAnswer struct {
	*upstream
	looked bool
}

func (a *firstAnswer) Read(b []byte) (int, error) {
	n, err := a.upstream.Read(b)
	if n > 0 && !a.looked {
		a.looked = true
		if f := a.f; f.opaque.Load() && len(f.names) > 0 && unmasks(b[:n]) {
			f.stop(sandbox.BlockedOpaque)
			return 0, f.ctx.Err()
		}
	}
	return n, err
}

// greet copies bytes from the server until it ends or its read deadline is set.
// It reports whether the server sent anything.
func (f *flow) greet(guest net.Conn, up *upstream) bool {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n, err := io.CopyBuffer(writer{guest}, reader{&firstAnswer{upstream: up}}, *buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n > 0
	}
	if err != nil || closeWrite(guest) != nil {
		f.cancel()
	}
	return n > 0
}

// firstWords reads from the client until its kind is clear, or the client ends.
// It also returns if the kind is not clear within clearWithin of the first byte.
func (f *flow) firstWords(guest net.Conn) ([]byte, kind) {
	head := make([]byte, 0, 2048)
	for {
		n, err := guest.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if k := classify(head); k != unclear {
			_ = guest.SetReadDeadline(time.Time{})
			return head, k
		}
		if err == io.EOF {
			return head, opaque // no protocol that the gateway inspects
		}
		if err != nil {
			return head, unclear
		}
		if n == len(head) { // the first bytes
			_ = guest.SetReadDeadline(time.Now().Add(clearWithin))
		}
		head = slices.Grow(head, 1024)
	}
}

// hello reads a client's hello, and returns it with all bytes that it read.
func (f *flow) hello(guest net.Conn) (hello, []byte, error) {
	_ = guest.SetReadDeadline(time.Now().Add(clearWithin))
	h, raw, err := readHello(guest)
	_ = guest.SetReadDeadline(time.Time{})
	return h, raw, err
}

// checkTLS forwards the client's bytes if its hello h agrees with the names of f.
// raw are the bytes of h, and err is the error of reading it. checkTLS reports
// whether it forwarded the bytes.
func (f *flow) checkTLS(guest net.Conn, up *upstream, h hello, raw []byte, err error) bool {
	if len(f.names) == 0 { // every server name is allowed at this address
		f.copy(up, rewind(guest, raw))
		return true
	}
	if err != nil {
		f.stop(sandbox.BlockedServerName)
		return false
	}
	refuse := func(why sandbox.BlockReason) bool {
		_, _ = guest.Write(alertUnrecognizedName)
		f.stop(why)
		return false
	}
	if h.encrypted {
		return refuse(sandbox.BlockedECH)
	}
	if !slices.Contains(f.names, h.serverName) {
		if h.serverName != "" {
			f.named(printable(h.serverName))
		}
		return refuse(sandbox.BlockedServerName)
	}
	f.named(h.serverName)
	rest := io.MultiReader(bytes.NewReader(raw), guest)
	if err := copyRecords(f.ctx, up, rest, h.serverName); err != nil {
		if errors.Is(err, errSecondHello) || errors.Is(err, errHello) {
			return refuse(sandbox.BlockedServerName)
		}
		if err != io.EOF {
			f.cancel()
		}
		_ = up.CloseWrite()
		return err == io.EOF
	}
	f.copy(up, &rewound{Conn: guest, r: rest})
	return true
}

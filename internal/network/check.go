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

// The kinds of what a client sends first.
type kind int

const (
	unclear kind = iota // more is needed
	opaque              // neither TLS nor HTTP: its server was chosen by its address
	hiding              // HTTP or TLS may follow, and cannot be looked at
	isTLS
	isHTTP
)

// Bounds on what is read before it is clear what a client speaks.
const (
	maxFirstLine = 8 << 10
	clearWithin  = 30 * time.Second
)

// classify says what b, which a client sent first, begins.
//
// Servers of HTTP differ in what they forgive: blanks and line ends before a
// request, any method of any length, any blank as a separator. So a text that
// has "HTTP/" in its first line is HTTP, whatever else it has, and so is one
// whose second word looks like a target.
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
		other = hiding // only servers of HTTP skip what is before it
	}
	if len(line) > 0 && (line[0] < ' ' || line[0] >= 0x7f) {
		return other
	}
	end := bytes.IndexAny(line, "\n\x00") // no text has a NUL
	if end >= 0 {
		line = line[:end]
	}
	upper := bytes.ToUpper(line)
	switch {
	case bytes.Contains(upper, []byte("HTTP/")), hasTarget(line):
		return isHTTP
	case bytes.HasPrefix(upper, []byte("PROXY ")):
		return hiding // a proxy's preamble, before what it carries
	case end >= 0:
		return other
	case len(head) == maxFirstLine:
		return isHTTP // let it be judged there
	}
	return unclear
}

// classifyTLS is for what begins as a record of TLS does.
func classifyTLS(b []byte) kind {
	switch {
	case len(b) < 2:
		return unclear
	case b[1] == 3:
		return isTLS
	}
	return opaque
}

// classifyBinary is for what begins with a byte that is in no text. A hello in
// the form of SSL 2 has no server name.
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

// hasTarget reports whether the second word of a line may be what a request is
// for: a path, a URL, or everything.
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

// A rewound connection gives again what was read of it.
type rewound struct {
	net.Conn
	r io.Reader
}

func rewind(c net.Conn, head []byte) *rewound {
	return &rewound{Conn: c, r: io.MultiReader(bytes.NewReader(head), c)}
}

func (c *rewound) Read(b []byte) (int, error) { return c.r.Read(b) }
func (c *rewound) CloseWrite() error          { return closeWrite(c.Conn) }

// splice carries bytes both ways until both sides have ended, or either fails.
func (f *flow) splice(guest net.Conn, up *upstream) {
	var ways sync.WaitGroup
	ways.Go(func() { f.copy(up, guest) })
	ways.Go(func() { f.copy(guest, up) })
	ways.Wait()
}

// buffers are for carrying.
var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// copy carries bytes one way, then tells the other side of the end.
func (f *flow) copy(dst, src net.Conn) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(writer{dst}, reader{src}, *buf)
	if err != nil || closeWrite(dst) != nil {
		f.cancel() // one way is broken: so is the other
	}
}

// reader and writer keep io.Copy from looking for short cuts around them.
type reader struct{ io.Reader }
type writer struct{ io.Writer }

// check carries bytes both ways once what the client sends agrees with the
// names that the connection was allowed for. What the server says before is
// carried meanwhile: some speak first.
func (f *flow) check(guest net.Conn, up *upstream) {
	down := make(chan bool, 1) // whether the server said something
	go func() {
		down <- f.greet(guest, up)
	}()
	head, k := f.firstWords(guest)
	rest := rewind(guest, head)
	switch k {
	case isHTTP:
		if len(f.names) == 0 { // whichever it is for may be asked
			f.copy(up, rest)
			break
		}
		// Requests are read one by one from here on, and answers too.
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
		if err == nil && f.terminates(h) {
			_ = up.SetReadDeadline(time.Unix(1, 0))
			if <-down { // no server of TLS speaks first
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
	default: // it does not come to the point
		switch {
		case len(head) == 0:
			f.cancel() // it ended before it said anything
		case len(f.names) == 0:
			f.copy(up, rest)
		default:
			f.stop(sandbox.BlockedOpaque)
		}
	}
	<-down
}

// passOpaque reports whether f may carry a protocol that does not say its host.
// From then on its server must not turn out to be one of HTTP or TLS. The policy
// may have changed since f was opened: [Gateway.SetNetwork] stores the new one
// before it looks at opaque, and this stores opaque before it looks at the policy.
func (f *flow) passOpaque() bool {
	f.opaque.Store(true)
	d := f.g.policy.Load().decide(f.dst, f.names, f.g.host())
	return d.blocked == "" && (len(d.names) == 0 || d.opaque)
}

// unmasks reports whether b, which a server said first to a client whose protocol
// was not known, is of a protocol that says the host: the client hid its request
// from classify, and the server forgave it.
func unmasks(b []byte) bool {
	return bytes.HasPrefix(b, []byte("HTTP/")) ||
		len(b) > 1 && (b[0] == recordHandshake || b[0] == recordAlert) && b[1] == 3
}

// firstAnswer looks at what a server says first.
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

// greet carries what the server says until it ends or its deadline is set, and
// reports whether it said anything.
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

// firstWords reads what the client sends until it is clear what it is, or it
// ends, or takes too long once it has begun.
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
			return head, opaque // nothing can become of it
		}
		if err != nil {
			return head, unclear
		}
		if n == len(head) { // the first
			_ = guest.SetReadDeadline(time.Now().Add(clearWithin))
		}
		head = slices.Grow(head, 1024)
	}
}

// hello reads a client's hello, and returns it with what was read.
func (f *flow) hello(guest net.Conn) (hello, []byte, error) {
	_ = guest.SetReadDeadline(time.Now().Add(clearWithin))
	h, raw, err := readHello(guest)
	_ = guest.SetReadDeadline(time.Time{})
	return h, raw, err
}

// checkTLS carries what the client sends if its hello agrees, which came as raw,
// or with err. It reports whether it did.
func (f *flow) checkTLS(guest net.Conn, up *upstream, h hello, raw []byte, err error) bool {
	if len(f.names) == 0 { // whichever it is for may be greeted
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

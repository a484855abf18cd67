package httpserver

import (
	"bufio"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
)

// An answer is the ResponseWriter of a request. It counts the bytes written. Each
// write must finish within patience, so that a client that reads too slowly is
// cut off. An evicted stream is cut off by deadlines, which cannot be changed
// afterwards.
type answer struct {
	http.ResponseWriter
	rc       *http.ResponseController
	status   int
	bytes    int64
	patience time.Duration             // timeout of each write
	use      atomic.Pointer[streamUse] // nil unless the request is a stream

	mu       sync.Mutex
	cut      bool // evicted: ignore changes of deadlines
	cutEarly bool // before the principal was known
	hijacked net.Conn
	known    bool       // the principal is known, or the answer has been sent
	unknown  *fair.Hold // until then; may be nil
}

// cutGrace is how long the handler of an evicted stream may still write to end
// its answer.
const cutGrace = time.Second

// evict cuts off the answer, and the body of its request.
func (a *answer) evict() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = true
	if a.hijacked != nil {
		netConn(a.hijacked).Close()
		return
	}
	// Ignore errors: a ResponseWriter without deadlines has no connection.
	_ = a.rc.SetReadDeadline(time.Now())
	_ = a.rc.SetWriteDeadline(time.Now().Add(cutGrace))
}

// setKnown records that the request's principal is known.
func (a *answer) setKnown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known, a.patience = true, ioTimeout
	a.unknown.Release()
}

// cutUnknown cuts the answer off at once, and reports whether it did: it does not
// once the principal is known.
func (a *answer) cutUnknown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known {
		return false
	}
	a.cut, a.cutEarly, a.known = true, true, true
	_ = a.rc.SetReadDeadline(time.Now())
	_ = a.rc.SetWriteDeadline(time.Now())
	a.unknown.Release()
	return true
}

// finish prepares the end of the request. It sends the answer to a client whose
// principal is not known while the request still counts. It reports whether the
// answer was cut off for others.
func (a *answer) finish(r *http.Request) (cut bool) {
	a.mu.Lock()
	unknown := a.unknown != nil && !a.known
	a.mu.Unlock()
	if unknown {
		if r.ContentLength != 0 {
			// net/http reads the rest of the body before it sends the answer.
			_ = a.SetReadDeadline(time.Now().Add(unknownTimeout))
		}
		_ = a.FlushError()
	}
	a.hurry() // for data that is still buffered after the handler
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = true
	a.unknown.Release()
	return a.cutEarly
}

// isCut reports whether the answer was cut off.
func (a *answer) isCut() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cut
}

// SetReadDeadline is called by http.ResponseController. It has no effect after
// evict.
func (a *answer) SetReadDeadline(t time.Time) error { return a.setDeadline(a.rc.SetReadDeadline, t) }

// SetWriteDeadline is called by http.ResponseController. It has no effect after
// evict.
func (a *answer) SetWriteDeadline(t time.Time) error { return a.setDeadline(a.rc.SetWriteDeadline, t) }

func (a *answer) setDeadline(set func(time.Time) error, t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cut {
		return nil
	}
	return set(t)
}

// Hijack implements [http.Hijacker].
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn, rw, err := a.rc.Hijack()
	if err == nil {
		a.hijacked = conn
		if a.cut {
			netConn(conn).Close()
		}
	}
	return conn, rw, err
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	defer a.hurry()()
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// ReadFrom uses the connection's ReadFrom, which can send a file without copying,
// in pieces of answerPiece.
func (a *answer) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := a.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	// The connection recognises a file only behind a single LimitedReader.
	whole, ok := r.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for {
		piece := &io.LimitedReader{R: whole.R, N: min(whole.N, answerPiece)}
		asked := piece.N
		done := a.hurry()
		m, err := to.ReadFrom(piece)
		done()
		n += m
		a.bytes += m
		whole.N -= m
		if err != nil || m < asked || whole.N <= 0 {
			return n, err
		}
	}
}

// answerPiece is the number of bytes of a file that must be sent within the
// patience.
const answerPiece = 1 << 20

// hurry sets the deadline of a write, and returns a function that removes it. On
// HTTP/2 an expired deadline ends the stream, even if nothing is being written.
// It ignores errors: a ResponseWriter without deadlines has no connection.
func (a *answer) hurry() (done func()) {
	a.use.Load().touch()
	_ = a.SetWriteDeadline(time.Now().Add(a.patience))
	return func() { _ = a.SetWriteDeadline(time.Time{}) }
}

// FlushError is called by http.ResponseController. The net/http server has no buffer to
// flush after a takeover of the connection, and would panic.
func (a *answer) FlushError() error {
	a.mu.Lock()
	hijacked := a.hijacked != nil
	a.mu.Unlock()
	if hijacked {
		return http.ErrHijacked
	}
	defer a.hurry()()
	return a.rc.Flush()
}

// Flush is FlushError without the error.
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap gives http.ResponseController access to the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

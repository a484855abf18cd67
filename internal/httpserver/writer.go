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
	patience time.Duration
	unknown  *fair.Hold                // held until the principal is known; may be nil
	use      atomic.Pointer[streamUse] // nil unless the request is a stream

	mu       sync.Mutex
	cut      bool // evicted: ignore changes of deadlines
	hijacked net.Conn
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
		a.hijacked.Close()
		return
	}
	// Ignore errors: a ResponseWriter without deadlines has no connection.
	_ = a.rc.SetReadDeadline(time.Now())
	_ = a.rc.SetWriteDeadline(time.Now().Add(cutGrace))
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
			conn.Close()
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

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error {
	defer a.hurry()()
	return a.rc.Flush()
}

// Flush is FlushError without the error.
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap gives http.ResponseController access to the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

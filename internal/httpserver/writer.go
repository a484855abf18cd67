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

// An answer is the ResponseWriter of a request. It counts what is written, and
// bounds the time of each write by its patience, so that a client that reads too
// slowly is cut off. A stream that the server ends for others is cut off at once:
// the deadlines that end it cannot be moved any more.
type answer struct {
	http.ResponseWriter
	rc       *http.ResponseController
	status   int
	bytes    int64
	patience time.Duration
	unknown  *fair.Hold                // until it is known whom the answer is for; may be nil
	use      atomic.Pointer[streamUse] // nil if it is no stream

	mu       sync.Mutex
	cut      bool // evicted: deadlines stay as they are
	hijacked net.Conn
}

// cutGrace is how long the handler of an evicted stream may still write, to end
// its answer.
const cutGrace = time.Second

// evict cuts the answer off, and the body of its request.
func (a *answer) evict() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = true
	if a.hijacked != nil {
		a.hijacked.Close()
		return
	}
	// Where there are no deadlines there is no connection to wait for.
	_ = a.rc.SetReadDeadline(time.Now())
	_ = a.rc.SetWriteDeadline(time.Now().Add(cutGrace))
}

// isCut reports whether the answer was cut off.
func (a *answer) isCut() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cut
}

// SetReadDeadline is what http.ResponseController sets the deadline of the
// request's body with.
func (a *answer) SetReadDeadline(t time.Time) error { return a.setDeadline(a.rc.SetReadDeadline, t) }

// SetWriteDeadline is what http.ResponseController sets the answer's deadline
// with.
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

// ReadFrom lets the system copy a file to the connection, a piece at a time.
func (a *answer) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := a.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	// Only a reader that is limited once is known for a file.
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

// answerPiece is how much of a file has to leave within the patience.
const answerPiece = 1 << 20

// hurry sets the deadline of a write, and returns what takes it off again: on
// HTTP/2 a deadline that passes ends the stream even if nothing is written.
// Where there are no deadlines there is no connection to wait for.
func (a *answer) hurry() (done func()) {
	a.use.Load().touch()
	_ = a.SetWriteDeadline(time.Now().Add(a.patience))
	return func() { _ = a.SetWriteDeadline(time.Time{}) }
}

// FlushError is what http.ResponseController flushes with.
func (a *answer) FlushError() error {
	defer a.hurry()()
	return a.rc.Flush()
}

// Flush is FlushError for those who do not look at the error.
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

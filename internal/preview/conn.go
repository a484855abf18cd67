package preview

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// pieceTime bounds each read of a request's body and each write to a WebSocket.
// The total time is not bounded here.
const pieceTime = 30 * time.Second

// A writer writes the answer to the client. It drops trailers of the program.
type writer struct {
	http.ResponseWriter
	rc   *http.ResponseController
	late http.Header // receives headers that are set after WriteHeader; nil before
}

func (w *writer) Header() http.Header {
	if w.late != nil {
		return w.late
	}
	return w.ResponseWriter.Header()
}

func (w *writer) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	w.late = http.Header{}
}

// Unwrap gives http.ResponseController access to the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &hurriedConn{conn}, rw, nil
}

// A hurriedConn disconnects a client that reads too slowly.
type hurriedConn struct{ net.Conn }

func (c *hurriedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(pieceTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// A patientBody is a body without a size limit. Each read of it has a timeout.
type patientBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func newPatientBody(w http.ResponseWriter, body io.ReadCloser) *patientBody {
	return &patientBody{body, http.NewResponseController(w)}
}

// Read removes the deadline afterwards, because net/http reads in the background
// to detect a disconnect. It ignores errors of deadlines: a ResponseWriter
// without deadlines has no connection.
func (b *patientBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(pieceTime))
	n, err := b.ReadCloser.Read(p)
	_ = b.rc.SetReadDeadline(time.Time{})
	return n, err
}

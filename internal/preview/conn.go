package preview

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// pieceTime bounds how long a piece of a body may take to come, and one of a
// WebSocket to leave. How long either takes as a whole is not bounded here.
const pieceTime = 30 * time.Second

// A writer answers the client. What the program says in trailers is dropped.
type writer struct {
	http.ResponseWriter
	rc   *http.ResponseController
	late http.Header // what comes after the header; nil before
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

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &hurriedConn{conn}, rw, nil
}

// A hurriedConn gives a client up that reads too slowly.
type hurriedConn struct{ net.Conn }

func (c *hurriedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(pieceTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// A patientBody is a body of any length, each piece of which has to come in
// time.
type patientBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func newPatientBody(w http.ResponseWriter, body io.ReadCloser) *patientBody {
	return &patientBody{body, http.NewResponseController(w)}
}

// Read takes the deadline off again: net/http watches the connection for the
// client going away, and what has no deadline is no connection.
func (b *patientBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(pieceTime))
	n, err := b.ReadCloser.Read(p)
	_ = b.rc.SetReadDeadline(time.Time{})
	return n, err
}

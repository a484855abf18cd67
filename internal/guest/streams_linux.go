package guest

import (
	"io"
	"net"
	"net/http"
)

// serveStream serves a connection inside a request: the request's body is its
// input, and the response's body its output.
func (c *connections) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ProtoMajor < 2 {
		w.WriteHeader(http.StatusMethodNotAllowed) // HTTP/1 is not full duplex
		return
	}
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return
	}
	near, far := net.Pipe()
	defer far.Close()
	c.ServeConn(near)
	go func() {
		_, _ = io.Copy(far, r.Body) // an error is an end, too
		far.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := far.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

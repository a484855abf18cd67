package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// dialTime bounds a dial to a loopback address. A dial takes longer only if the
// program's listen queue is full.
const dialTime = 10 * time.Second

// servePort connects a request to a port in the box.
func servePort(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ProtoMajor < 2 {
		w.WriteHeader(http.StatusMethodNotAllowed) // HTTP/1 is not full duplex
		return
	}
	conn, err := dialPort(r.Context(), r.PathValue("port"))
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return
	}
	go func() {
		// A program that has stopped reading may still send data. So a write
		// error does not end the connection; the reading side decides.
		if _, err := io.Copy(conn, r.Body); err == nil {
			_ = conn.CloseWrite()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the answer is incomplete
		}
	}
}

// dialPort connects to a port of the loopback addresses, IPv4 first.
func dialPort(ctx context.Context, text string) (*net.TCPConn, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "%.10q is not a port", text)
	}
	dialer := net.Dialer{Timeout: dialTime}
	for _, host := range []string{"127.0.0.1", "::1"} {
		var conn net.Conn
		conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, text))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENETUNREACH) {
		return nil, rpc.Errorf(guestapi.CodeUnavailable, "nothing listens on port %d of the sandbox", port)
	}
	return nil, rpc.Errorf(guestapi.CodeUnavailable, "port %d of the sandbox: %v", port, err)
}

package guest

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Bounds on the programs that use the contexts from inside the box.
const (
	insideConns  = 64
	insideHeader = 10 * time.Second
	insideIdle   = time.Minute
)

// An inside serves E2B's code interpreter to the programs of the box, at an address
// of its loopback. It listens from the first request on that comes from a client of
// E2B's protocol. Requests of programs act as the default user: they name no user,
// have E2B's fields only, and use no context of another user.
type inside struct {
	address string
	handler http.Handler // of the guest

	mu     sync.Mutex
	server *http.Server // nil before it listens
	closed bool
}

// listen begins to serve, unless it has begun. If a program has the port, the next
// request of a client of E2B's protocol tries again.
func (in *inside) listen() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.address == "" || in.server != nil || in.closed {
		return
	}
	l, err := net.Listen("tcp4", in.address)
	if err != nil {
		return // the port is a program's
	}
	in.server = &http.Server{
		Handler: in.routes(), ReadHeaderTimeout: insideHeader, IdleTimeout: insideIdle,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	go in.server.Serve(&boundedListener{Listener: l, slots: make(chan struct{}, insideConns)})
}

func (in *inside) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	if in.server != nil {
		in.server.Close()
	}
}

// home is where E2B's contexts start, unless a request says otherwise.
const home = "~"

func (in *inside) routes() http.Handler {
	mux := http.NewServeMux()
	plain := func(w http.ResponseWriter, r *http.Request) { in.pass(w, r, http.NoBody, 0) }
	mux.HandleFunc("GET "+guestapi.PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", guestapi.ContentTypeUnary)
		_, _ = io.WriteString(w, guestapi.InterpreterHealth)
	})
	mux.HandleFunc("GET "+guestapi.PathContexts, plain)
	mux.HandleFunc("DELETE "+guestapi.PathContexts+"/{id}", plain)
	mux.HandleFunc("POST "+guestapi.PathContexts+"/{id}/restart", plain)
	mux.HandleFunc("POST "+guestapi.PathExecute, func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Code      string            `json:"code"`
			ContextID string            `json:"context_id"`
			Language  string            `json:"language"`
			EnvVars   map[string]string `json:"env_vars"`
		}
		if in.read(w, r, &asked) {
			req := guestapi.ExecuteRequest{Code: asked.Code, ContextID: asked.ContextID, Language: asked.Language, EnvVars: asked.EnvVars}
			if req.ContextID == "" {
				req.Cwd = home // of the default context, if this makes it
			}
			in.passJSON(w, r, &req)
		}
	})
	mux.HandleFunc("POST "+guestapi.PathContexts, func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Language string            `json:"language"`
			Cwd      string            `json:"cwd"`
			EnvVars  map[string]string `json:"env_vars"`
		}
		if in.read(w, r, &asked) {
			req := guestapi.ContextRequest{Language: asked.Language, Cwd: asked.Cwd, Env: asked.EnvVars}
			if req.Cwd == "" {
				req.Cwd = home
			}
			in.passJSON(w, r, &req)
		}
	})
	return mux
}

// read decodes the body of a request. If it is wrong, read answers it.
func (in *inside) read(w http.ResponseWriter, r *http.Request, v any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, guestapi.MaxUnaryRequest)).Decode(v)
	if err != nil && err != io.EOF { // an empty body has the defaults
		rpc.WriteError(w, rpc.Errorf(guestapi.CodeInvalidArgument, "request: %v", err))
		return false
	}
	return true
}

func (in *inside) passJSON(w http.ResponseWriter, r *http.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	in.pass(w, r, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
}

// pass gives the guest a request without the headers of the program, above all
// without a user.
func (in *inside) pass(w http.ResponseWriter, r *http.Request, body io.ReadCloser, length int64) {
	out := rpc.ByProgram(r)
	out.Header = http.Header{"Content-Type": {guestapi.ContentTypeUnary}}
	out.Body, out.ContentLength, out.TransferEncoding = body, length, nil
	in.handler.ServeHTTP(w, out)
}

// A boundedListener has at most as many connections as it has slots.
type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

type boundedConn struct {
	net.Conn
	free func()
}

func (c *boundedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

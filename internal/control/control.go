// Package control lets a command use a sandbox that another process of the same
// operator looks after: that process serves what is asked of it on a Unix
// socket in the state directory, which is the operator's alone.
//
// Only package app imports it. [Serve] makes a [Server], which Close ends;
// [Client] asks one. The protocol is HTTP, between programs of one version or
// near it.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Engine has the sandboxes that are served, whosoever they are.
type Engine interface {
	Owner(ctx context.Context, id string) (sandbox.Principal, error)
	DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error)
	SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error)
}

// maxMessage bounds a message of either side; the longest is a policy.
const maxMessage = 64 << 10

// answerTime bounds how long a process may take to answer.
const answerTime = time.Minute

// A Server serves one process's sandboxes.
type Server struct {
	engine Engine
	path   string
	http   *http.Server

	closing context.Context
	close   context.CancelFunc

	mu     sync.Mutex
	closed bool
	joins  sync.WaitGroup // counted up under mu, until closed
}

// Serve listens at path, where nothing is, and serves until Close.
func Serve(path string, engine Engine) (*Server, error) {
	name, done, err := short(path)
	if err != nil {
		return nil, err
	}
	defer done()
	ln, err := net.Listen("unix", name)
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // by a name that may be gone
	s := &Server{engine: engine, path: path}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close(), os.Remove(path))
	}
	s.closing, s.close = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sandboxes/{id}/ports/{port}", s.port)
	mux.HandleFunc("PUT /sandboxes/{id}/network", s.network)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: answerTime}
	go s.http.Serve(ln)
	return s, nil
}

// Close ends what is served, connections to ports too.
func (s *Server) Close() error {
	s.close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.http.Close()
	s.joins.Wait()
	if rmErr := os.Remove(s.path); !errors.Is(rmErr, fs.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	return err
}

// short returns a name for the path of a socket that is short enough for one,
// good until done is called.
func short(path string) (name string, done func(), err error) {
	if runtime.GOOS != "linux" {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

// A problem is an error as it crosses the socket.
type problem struct {
	Kind    sandbox.Kind `json:"kind"`
	Message string       `json:"message"`
	Hint    string       `json:"hint,omitempty"`
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Whoever asked may be gone.
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, err error) {
	answer(w, http.StatusBadRequest, problem{sandbox.KindOf(err), err.Error(), sandbox.HintOf(err)})
}

// port makes a connection to a port of the one that the request came on.
func (s *Server) port(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		refuse(w, sandbox.Errorf(sandbox.Invalid, "port: %w", err))
		return
	}
	p, err := s.engine.Owner(r.Context(), id)
	if err != nil {
		refuse(w, err)
		return
	}
	to, err := s.engine.DialPort(r.Context(), p, id, port)
	if err != nil {
		refuse(w, err)
		return
	}
	defer to.Close()
	if !s.begin() {
		return // and so has the connection
	}
	defer s.joins.Done()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, sandbox.Errorf(sandbox.Internal, "%w", err))
		return
	}
	defer conn.Close()
	if _, err := rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"); err != nil || rw.Flush() != nil {
		return
	}
	defer context.AfterFunc(s.closing, func() {
		conn.Close()
		to.Close()
	})()
	Join(&readerConn{conn, rw.Reader}, to)
}

// begin counts a connection in, unless the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.joins.Add(1)
	}
	return !s.closed
}

func (s *Server) network(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var n sandbox.Network
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&n); err != nil {
		refuse(w, sandbox.Errorf(sandbox.Invalid, "%w", err))
		return
	}
	p, err := s.engine.Owner(r.Context(), id)
	if err != nil {
		refuse(w, err)
		return
	}
	sb, err := s.engine.SetNetwork(r.Context(), p, id, n)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, sb)
}

// Join copies between two connections, the end of one half of each too, until
// both have ended or one is broken. It closes neither.
func Join(a, b net.Conn) {
	var ways sync.WaitGroup
	way := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		half, ok := to.(interface{ CloseWrite() error })
		if err == nil && ok {
			err = half.CloseWrite()
		}
		if err != nil || !ok {
			to.Close()
			from.Close()
		}
	}
	ways.Go(func() { way(a, b) })
	ways.Go(func() { way(b, a) })
	ways.Wait()
}

// readerConn is a connection of which something was read ahead.
type readerConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *readerConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *readerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

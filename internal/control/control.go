// Package control lets a command use a sandbox that another process of the same
// operator holds. That process serves requests on a Unix socket in the state
// directory, which only the operator can access.
//
// Only package app imports it. [Serve] makes a [Server], which Close ends. A
// [Client] sends requests to it. The protocol is HTTP, between programs of equal
// or similar versions.
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

// An Engine has the sandboxes of all principals.
type Engine interface {
	Owner(ctx context.Context, id string) (sandbox.Principal, error)
	DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error)
	SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error)
	Hibernate(ctx context.Context, p sandbox.Principal, id string) error
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	Rollback(ctx context.Context, p sandbox.Principal, id, ref string, endRuns bool) (sandbox.Snapshot, error)
	Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
}

// maxMessage bounds a request's body and an error, in bytes; the longest is a
// network policy.
const maxMessage = 64 << 10

// answerTime is the timeout for an answer.
const answerTime = time.Minute

// A Server serves the sandboxes of one process.
type Server struct {
	engine Engine
	path   string
	http   *http.Server

	closing context.Context
	close   context.CancelFunc

	mu     sync.Mutex
	closed bool
	links  func(ctx context.Context, token string) (Link, error) // nil without a dashboard
	start  Starter                                               // nil if the process holds no sandboxes for commands
	joins  sync.WaitGroup                                        // incremented under mu, and only until closed
}

// Serve listens at path, which must not exist, and serves until Close.
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
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // the name may be invalid by then
	s := &Server{engine: engine, path: path}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close(), os.Remove(path))
	}
	s.closing, s.close = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sandboxes/{id}/ports/{port}", s.port)
	mux.HandleFunc("PUT /sandboxes/{id}/network", s.network)
	mux.HandleFunc("PUT /sandboxes/{id}/hibernation", s.hibernate)
	mux.HandleFunc("POST /sandboxes/{id}/snapshot", s.snapshot)
	mux.HandleFunc("POST /dashboard/links", s.link)
	mux.HandleFunc("POST /runs", s.run)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: answerTime}
	go s.http.Serve(ln)
	return s, nil
}

// Close ends all requests and connections to ports, and removes the socket.
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

// short returns a name for the socket that fits into a socket address. The name
// is valid until done is called.
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

// A problem is an error in the socket's protocol. The command finds the argument in
// the message.
type problem = sandbox.Problem

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Ignore the error: the client may be gone.
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, err error) {
	answer(w, http.StatusBadRequest, sandbox.ProblemOf(err, nil))
}

// port turns the connection of the request into a connection to a port.
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
		return // the server has closed the connection, too
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

// begin registers a connection. It returns false if the server is closed.
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

// A Link signs one browser in to the dashboard of a process, once and until Expires.
type Link struct {
	URL       string            `json:"url"`
	Principal sandbox.Principal `json:"principal"`
	Expires   time.Time         `json:"expires_at"`
}

// OfferLinks lets commands make links to the dashboard of this process, by links. Its
// argument is the name of a token, or "" for the usual one.
func (s *Server) OfferLinks(links func(ctx context.Context, token string) (Link, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = links
}

// A linkRequest asks for a link.
type linkRequest struct {
	Token string `json:"token,omitempty"`
}

func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	links := s.links
	s.mu.Unlock()
	if links == nil {
		refuse(w, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the server has no dashboard"), "start glovebox serve with --dashboard"))
		return
	}
	var req linkRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&req); err != nil {
		refuse(w, sandbox.Errorf(sandbox.Invalid, "%w", err))
		return
	}
	l, err := links(r.Context(), req.Token)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, l)
}

// Join copies between two connections in both directions, and forwards
// half-closes. It returns when both directions have ended or one connection is
// broken. If one breaks, Join closes both; otherwise the caller must.
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

// readerConn is a connection with a buffered reader.
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

package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A pipeListener is a network without a machine, for tests in virtual time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// An addressed connection has the remote address that a test chose.
type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

// dial connects from an address.
func (l *pipeListener) dial(t testing.TB, from string) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	select {
	case l.conns <- addressed{far, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}:
	case <-l.done:
		t.Fatal("the listener is closed")
	}
	return near
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// serveBubble serves s within a bubble until stop.
func serveBubble(t *testing.T, s *Server) (l *pipeListener, stop func()) {
	t.Helper()
	l = newPipeListener()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// head is the head of a request of a principal.
func head(method, path, who string, size int) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAuthorization: Bearer good-%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, who, size)
}

// ask sends one request on a connection, and returns the answer's status.
func ask(conn net.Conn, who, body string) (int, error) {
	if _, err := io.WriteString(conn, head("POST", "/mcp", who, len(body))+body); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// TestSlowBodies has a principal open requests whose bodies never come, over
// and over again.
func TestSlowBodies(t *testing.T) {
	for _, attackers := range []int{33, 200} {
		t.Run(fmt.Sprint(attackers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, stop := serveBubble(t, newServer(t, nil))
				var ended sync.WaitGroup
				var conns []net.Conn
				statuses := make([]int, attackers)
				for i := range attackers {
					conn := l.dial(t, "192.0.2.1")
					conns = append(conns, conn)
					if _, err := io.WriteString(conn, head("POST", "/mcp", "a", 8<<20)+"{"); err != nil {
						t.Fatal(err)
					}
					ended.Go(func() {
						if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
							statuses[i] = res.StatusCode
							res.Body.Close()
						}
					})
				}
				synctest.Wait()
				conn := l.dial(t, "192.0.2.2")
				for _, size := range []int{1, 100, 64 << 10, 1 << 20} {
					began := time.Now()
					status, err := ask(conn, "b", strings.Repeat("x", size))
					if status != 200 || err != nil || time.Since(began) != 0 {
						t.Errorf("b's request of %d bytes: %d, %v, after %v", size, status, err, time.Since(began))
					}
				}
				began := time.Now()
				ended.Wait() // the server gives the slow ones up
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the slow bodies were given up after %v", took)
				}
				for i, status := range statuses {
					if status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
						t.Errorf("slow body %d: %d, want 408 or 429", i, status)
					}
				}
				for _, c := range append(conns, conn) {
					c.Close()
				}
				stop()
			})
		})
	}
}

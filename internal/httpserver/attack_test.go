package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
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

// TestEvictedStreamsEnd has a principal take all streams, with handlers that look
// at nothing but what they write and read, and a client that is as slow as it may
// be. Another principal gets a stream at once.
func TestEvictedStreamsEnd(t *testing.T) {
	const patience = ioTimeout * 9 / 10
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		client  func(net.Conn)
	}{
		"Downloads": {
			func(w http.ResponseWriter, _ *http.Request) {
				for {
					if _, err := w.Write(make([]byte, 4096)); err != nil {
						return
					}
				}
			},
			func(conn net.Conn) {
				for {
					if _, err := io.CopyN(io.Discard, conn, 5000); err != nil {
						return
					}
					time.Sleep(patience)
				}
			},
		},
		"FileDownloads": {
			func(w http.ResponseWriter, r *http.Request) {
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 64<<20)))
			},
			func(conn net.Conn) {
				for {
					if _, err := io.CopyN(io.Discard, conn, 1<<20); err != nil {
						return
					}
					time.Sleep(patience)
				}
			},
		},
		"Uploads": {
			func(w http.ResponseWriter, r *http.Request) {
				body := &uploadReader{r: r.Body, rc: http.NewResponseController(w), end: func() error { return nil }}
				_, _ = io.Copy(io.Discard, body)
			},
			func(conn net.Conn) {
				for {
					if _, err := io.WriteString(conn, "x"); err != nil {
						return
					}
					time.Sleep(patience)
				}
			},
		},
		"UploadsThatWait": {
			func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-untilEvicted(r.Context()).Done():
				case <-time.After(time.Hour):
				}
			},
			func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		},
		"Hijacked": {
			func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				defer conn.Close()
				_, _ = io.Copy(conn, endless{})
			},
			func(net.Conn) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served := make(chan struct{})
				s := newServer(t, func(o *Options) { o.Shares = smallShares() })
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if id, _ := auth.FromContext(r.Context()); id.Principal == "good-b" {
						close(served)
						return
					}
					c.handler(w, r)
				})
				s.handler = s.logRequests(s.authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s.stream(w, r, handler, false, writeErrorTo)
				})))
				l, stop := serveBubble(t, s)
				var conns []net.Conn
				var clients sync.WaitGroup
				for range 100 {
					conn := l.dial(t, "192.0.2.1")
					conns = append(conns, conn)
					clients.Go(func() {
						if _, err := io.WriteString(conn, head("PUT", "/", "a", 1<<20)); err == nil {
							c.client(conn)
						}
					})
				}
				time.Sleep(2 * time.Minute)
				began := time.Now()
				conn := l.dial(t, "192.0.2.2")
				go func() { _, _ = io.WriteString(conn, head("PUT", "/", "b", 0)) }()
				select {
				case <-served:
				case <-time.After(5 * time.Minute):
					t.Error("the other's stream is not served")
				}
				if took := time.Since(began); took > 2*cutGrace {
					t.Errorf("the other's stream waited for %v", took)
				}
				for _, conn := range append(conns, conn) {
					conn.Close()
				}
				clients.Wait()
				stop()
				time.Sleep(time.Hour) // the last handlers end
			})
		})
	}
}

// TestUnknownClients has clients without a token take what they can: connections that
// send nothing, answers that they do not read, and bodies that they do not send.
func TestUnknownClients(t *testing.T) {
	const noToken = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
	for name, request := range map[string]string{
		"Nothing": "", "Headers": noToken, "Answers": noToken + "Content-Length: 0\r\n\r\n",
		"Bodies": noToken + "Content-Length: 1000\r\n\r\n", "Chunks": noToken + "Transfer-Encoding: chunked\r\n\r\n",
		"Health": "POST /healthz HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Length: 1000\r\n\r\n",
	} {
		for where, address := range map[string]string{"ManyAddresses": "2001:db8:%x:%x::1", "OneAddress": "2001:db8::%x:%x"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					shares := smallShares()
					l, stop := serveBubble(t, newServer(t, func(o *Options) { o.Shares = shares }))
					known := l.dial(t, "2001:db8::1")
					if status, err := ask(known, "b", "x"); status != 200 || err != nil {
						t.Fatalf("b: %d, %v", status, err)
					}
					var conns []net.Conn
					for i := range 1000 {
						conn := l.dial(t, fmt.Sprintf(address, i/256, i%256))
						conns = append(conns, conn)
						go func() { _, _ = io.WriteString(conn, request) }()
					}
					synctest.Wait()
					if st := shares.newcomers.Stats(); st.Used > 512 {
						t.Errorf("newcomers have %d connections", st.Used)
					}
					if st := shares.unknown.Stats(); st.Used > 256 {
						t.Errorf("newcomers have %d requests under way", st.Used)
					}
					began := time.Now()
					for _, from := range []string{"2001:db8::1", "192.0.2.3"} {
						fresh := l.dial(t, from)
						conns = append(conns, fresh)
						if status, err := ask(fresh, "c", "x"); status != 200 || err != nil || time.Since(began) != 0 {
							t.Errorf("c, new from %s: %d, %v, after %v", from, status, err, time.Since(began))
						}
					}
					if status, err := ask(known, "b", "x"); status != 200 || err != nil || time.Since(began) != 0 {
						t.Errorf("b, which was there before: %d, %v, after %v", status, err, time.Since(began))
					}
					time.Sleep(2 * unknownTimeout)
					if st := shares.unknown.Stats(); st.Used != 0 {
						t.Errorf("%d answers to newcomers are under way", st.Used)
					}
					for _, c := range append(conns, known) {
						c.Close()
					}
					stop()
					synctest.Wait()
					nothingHeld(t, shares)
				})
			})
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestFlushAfterHijack: an evicted stream flushes its answer, also if its connection is
// a WebSocket's.
func TestFlushAfterHijack(t *testing.T) {
	flushed := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := &answer{ResponseWriter: w, rc: http.NewResponseController(w), patience: time.Second}
		conn, _, err := a.Hijack()
		if err != nil {
			flushed <- err
			return
		}
		defer conn.Close()
		defer close(flushed) // also after a panic
		flushed <- a.FlushError()
	}))
	defer s.Close()
	if res, err := http.Get(s.URL); err == nil {
		res.Body.Close()
	}
	if err := <-flushed; !errors.Is(err, http.ErrHijacked) {
		t.Errorf("a flush after a takeover of the connection: %v", err)
	}
}

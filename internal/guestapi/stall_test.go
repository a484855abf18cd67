package guestapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Types and flags of HTTP/2 frames.
const (
	frameData, frameHeaders, frameSettings, framePing = 0, 1, 4, 6

	flagEndHeaders = 4
)

// Header blocks of one status.
var status200, status500 = []byte{0x88}, []byte{0x8e}

func frame(typ, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), typ, flags}
	return append(binary.BigEndian.AppendUint32(b, id), payload...)
}

// liar is a guest that speaks HTTP/2 by hand. It reads up to the header of a
// request, calls answer with the stream's number, and continues if that says so.
func liar(t *testing.T, answer func(conn net.Conn, id uint32) bool) *Client {
	c := NewClient(liarDialer(t, answer))
	t.Cleanup(c.Close)
	return c
}

func liarDialer(t *testing.T, answer func(conn net.Conn, id uint32) bool) Dialer {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(conn net.Conn) {
		defer func() { <-t.Context().Done(); conn.Close() }()
		io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		conn.Write(frame(frameSettings, 0, 0, []byte{0, 3, 0, 0, 0x10, 0})) // 4096 streams
		for {
			var h [9]byte
			if _, err := io.ReadFull(conn, h[:]); err != nil {
				return
			}
			io.CopyN(io.Discard, conn, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
			if h[3] == frameHeaders && !answer(conn, binary.BigEndian.Uint32(h[5:])) {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}
}

// stuff answers a request with pings around a body, so that the client has much
// to write, and reads nothing more.
func stuff(conn net.Conn, id uint32, pings int, status, body []byte) {
	ping := frame(framePing, 0, 0, make([]byte, 8))
	conn.Write(bytes.Repeat(ping, pings))
	conn.Write(frame(frameHeaders, flagEndHeaders, id, status))
	for len(body) > 0 {
		n := min(len(body), 15000)
		conn.Write(frame(frameData, 0, id, body[:n]))
		body = body[n:]
	}
	go func() {
		for {
			if _, err := conn.Write(bytes.Repeat(ping, 100)); err != nil {
				return
			}
		}
	}()
}

// TestGuestThatDoesNotRead calls guests that stop reading their connection, or
// almost. The calls end soon after their contexts. Streams without an end of
// their own end when the guest was given time enough.
func TestGuestThatDoesNotRead(t *testing.T) {
	var wg sync.WaitGroup
	within := func(name string, most time.Duration, f func() error) {
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- f() }()
		select {
		case err := <-done:
			t.Logf("%s: %v: %v", name, time.Since(began).Round(time.Millisecond), err)
			if sandbox.KindOf(err) != sandbox.Unavailable {
				t.Errorf("%s: %v, want an error of kind Unavailable", name, err)
			}
		case <-time.After(most):
			t.Errorf("%s: hangs after %v", name, most)
		}
	}
	for _, pings := range []int{0, 200, 270, 2000} {
		for _, slow := range []bool{false, true} {
			for name, call := range map[string]func(*Client, context.Context) error{
				"health": (*Client).Health,
				"signal": func(c *Client, ctx context.Context) error { return c.Signal(ctx, ProcessSelector{PID: 7}, SIGKILL) },
			} {
				c := liar(t, func(conn net.Conn, id uint32) bool {
					stuff(conn, id, pings, status500, make([]byte, 60000))
					for slow {
						time.Sleep(50 * time.Millisecond)
						if _, err := conn.Read(make([]byte, 1)); err != nil {
							break
						}
					}
					return false
				})
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					within(fmt.Sprintf("%s, %d pings, slow: %t", name, pings, slow), bodyGrace+4*time.Second,
						func() error { return call(c, ctx) })
				})
			}
		}
	}
	output := AppendEnvelope(nil, 0, []byte(started))
	for range 100 {
		output = AppendEnvelope(output, 0, fmt.Appendf(nil, `{"event":{"data":{"stdout":%q}}}`, strings.Repeat("A", 6000)))
	}
	c := liar(t, func(conn net.Conn, id uint32) bool {
		stuff(conn, id, 0, status200, output)
		return false
	})
	wg.Go(func() {
		within("stream", writeTimeout+5*time.Second, func() error {
			p, err := c.Connect(t.Context(), ProcessSelector{PID: 7})
			for err == nil {
				_, err = p.Next()
			}
			if p != nil {
				p.Close()
			}
			return err
		})
	})
	dial := liarDialer(t, func(conn net.Conn, id uint32) bool {
		stuff(conn, id, 0, status200, make([]byte, 600000))
		return false
	})
	wg.Go(func() {
		within("carrier", writeTimeout+5*time.Second, func() error {
			carried, err := dial(t.Context())
			if err != nil {
				return err
			}
			c := NewCarrier(carried)
			defer c.Close()
			conn, err := c.Dial(t.Context())
			if err != nil {
				return err
			}
			io.Copy(io.Discard, conn)
			<-c.Done()
			_, err = c.Dial(t.Context())
			return err
		})
	})
	wg.Wait()
}

// TestSilentStreamStays has a stream be silent for hours. The bound on writes
// does not end it.
func TestSilentStreamStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Write(AppendEnvelope(nil, 0, []byte(started)))
			http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Hour)
			w.Write(AppendEnvelope(nil, 0, []byte(`{"event":{"end":{}}}`)))
			w.Write(AppendEnvelope(nil, FlagEndStream, []byte(`{}`)))
		})}
		s.Protocols.SetUnencryptedHTTP2(true)
		l := oneConn{conns: make(chan net.Conn, 1)}
		l.conns <- far
		go s.Serve(l)
		c := NewClient(func(context.Context) (net.Conn, error) { return near, nil })
		p, err := c.Connect(t.Context(), ProcessSelector{PID: 7})
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := p.Next(); err != nil || ev.End == nil {
			t.Errorf("after hours: %+v, %v", ev, err)
		}
		c.Close()
		s.Close()
	})
}

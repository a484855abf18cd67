package socket

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// serve returns the address of a server that echoes messages, and sends the error of
// each connection.
func serve(t *testing.T) (addr string, ended chan error) {
	t.Helper()
	ended = make(chan error, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			w.WriteHeader(sandbox.KindOf(err).HTTPStatus())
			return
		}
		defer c.Close()
		for {
			kind, message, err := c.Read()
			if err != nil {
				ended <- err
				return
			}
			if err := c.Write(kind, message); err != nil {
				ended <- err
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), ended
}

const handshake = "GET / HTTP/1.1\r\nHost: box.test\r\nOrigin: http://box.test\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

func dial(t *testing.T, addr, request string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, r, res
}

func frame(first byte, data string) []byte {
	f := []byte{first, 128 | byte(len(data)), 1, 2, 3, 4}
	for i := range data {
		f = append(f, data[i]^byte(i%4+1))
	}
	return f
}

func TestHandshake(t *testing.T) {
	addr, _ := serve(t)
	_, _, res := dial(t, addr, handshake)
	if res.StatusCode != 101 || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" { // of the RFC
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	for name, c := range map[string]struct {
		old, new string
		want     int
	}{
		"another origin":   {"Origin: http://box.test", "Origin: http://8000-sbx.box.test", 403},
		"another port":     {"Origin: http://box.test", "Origin: http://box.test:81", 403},
		"no origin":        {"Origin: http://box.test\r\n", "", 403},
		"an opaque origin": {"Origin: http://box.test", "Origin: null", 403},
		"two origins":      {"Origin: http://box.test", "Origin: http://box.test\r\nOrigin: http://evil.test", 403},
		"no upgrade":       {"Upgrade: websocket\r\n", "", 400},
		"an old version":   {"Version: 13", "Version: 8", 400},
		"a short key":      {"dGhlIHNhbXBsZSBub25jZQ==", "dGhl", 400},
	} {
		if _, _, res := dial(t, addr, strings.Replace(handshake, c.old, c.new, 1)); res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.want)
		}
	}
}

func TestMessages(t *testing.T) {
	addr, ended := serve(t)
	c, r, _ := dial(t, addr, handshake)
	var sent []byte
	sent = append(sent, frame(0x82, "input")...)
	sent = append(sent, frame(0x01, "in two ")...)
	sent = append(sent, frame(0x89, "ping")...)
	sent = append(sent, frame(0x80, "parts")...)
	sent = append(sent, frame(0x88, "\x03\xe8")...)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte("\x82\x05input\x8a\x04ping\x81\x0cin two parts\x88\x02\x03\xe8"); !bytes.HasPrefix(got, want) {
		t.Errorf("%q", got)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"not masked":       {0x82, 1, 'x'},
		"an extension":     frame(0xc2, "x"),
		"a large message":  {0x82, 255, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0},
		"huge":             {0x82, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0},
		"no first part":    frame(0x80, "x"),
		"two first parts":  append(frame(0x01, "x"), frame(0x01, "x")...),
		"a ping in parts":  frame(0x09, "x"),
		"an unknown frame": frame(0x83, "x"),
	} {
		addr, ended := serve(t)
		c, _, _ := dial(t, addr, handshake)
		if _, err := c.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pipe is an answer over a connection without an operating system.
type pipe struct {
	http.ResponseWriter
	conn net.Conn
}

func (p pipe) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return p.conn, bufio.NewReadWriter(bufio.NewReader(p.conn), bufio.NewWriter(p.conn)), nil
}

// accept returns a connection whose client is at the other end of a pipe, and has read
// the handshake.
func accept(t *testing.T) (*Conn, net.Conn, *bufio.Reader) {
	t.Helper()
	server, client := net.Pipe()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(handshake)))
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(client)
	answered := make(chan error, 1)
	go func() {
		_, err := http.ReadResponse(reader, r)
		answered <- err
	}()
	c, err := Accept(pipe{httptest.NewRecorder(), server}, r)
	if err := errors.Join(err, <-answered); err != nil {
		t.Fatal(err)
	}
	return c, client, reader
}

// TestSilence notices clients that are gone, and keeps those that answer pings.
func TestSilence(t *testing.T) {
	for name, gone := range map[string]func(client net.Conn){
		"reads, and never answers": func(client net.Conn) { _, _ = io.Copy(io.Discard, client) },
		"does not read":            func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client, _ := accept(t)
				go gone(client)
				began := time.Now()
				_, _, err := c.Read()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > time.Minute {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, client, r := accept(t)
		pings := 0
		go func() { // a client that says nothing of its own for an hour
			for began := time.Now(); time.Since(began) < time.Hour; pings++ {
				var ping [2]byte
				if _, err := io.ReadFull(r, ping[:]); err != nil || ping != [2]byte{128 | opPing, 0} {
					t.Errorf("%x, %v", ping, err)
					return
				}
				if _, err := client.Write(frame(128|opPong, "")); err != nil {
					t.Error(err)
				}
			}
			if _, err := client.Write(frame(0x82, "still here")); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, r)
		}()
		kind, message, err := c.Read()
		if err != nil || kind != Binary || string(message) != "still here" || pings != int(time.Hour/pingEvery) {
			t.Errorf("%d pings, %q, %v", pings, message, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	})
}

// TestCloseOfBlockedWrite ends a write to a client that does not read.
func TestCloseOfBlockedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := accept(t)
		written := make(chan error)
		go func() { written <- c.Write(Binary, []byte("output")) }()
		synctest.Wait()
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-written; err == nil || time.Since(began) > 2*closeTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

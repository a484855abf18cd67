package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// portServer is a Python program that listens on a free port of the address in
// its first argument, and prints the port. The second argument says how it
// treats connections: echo the input and then its size, never read, or reset.
const portServer = `
import socket, socketserver, struct, sys, time
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        n = 0
        while sys.argv[2] == 'ignore': time.sleep(1)
        if sys.argv[2] == 'reset':
            self.request.sendall(b'some')
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.request.close()
            return
        while True:
            data = self.request.recv(65536)
            if not data: break
            n += len(data)
            self.request.sendall(data)
        self.request.sendall(b'%d bytes' % n)
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
    def handle_error(self, *args): pass
try:
    server = Server((sys.argv[1], 0), Handler)
except OSError as e:
    print('none', e, flush=True)
    sys.exit()
print(server.server_address[1], flush=True)
server.serve_forever()
`

// listen starts portServer. It returns port 0 if the box does not have the
// address.
func (b *Box) listen(t testing.TB, s *suite, addr, how string) (p *guestapi.Events, port int) {
	t.Helper()
	p, said := b.startReady(t, Python(s.h.Python, portServer, addr, how))
	t.Cleanup(func() {
		p.Close()
		ctx, cancel := context.WithTimeout(context.Background(), stepTime)
		defer cancel()
		// The server or the box may have ended.
		_, _ = b.Run(ctx, Cmd{Shell: "kill -9 " + pidText(p.PID()), User: sandbox.Root})
	})
	if strings.HasPrefix(said, "none") {
		return p, 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(said))
	if err != nil {
		t.Fatalf("the server in the box says %q", said)
	}
	return p, port
}

func (b *Box) dialPort(t testing.TB, port int) *guestapi.PortConn {
	t.Helper()
	c, err := b.Client.DialPort(step(t), port)
	if err != nil {
		t.Fatalf("DialPort: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// testPort checks that clients reach servers in a box through its guest,
// although the box has no network.
func testPort(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	if !st.Info().Features.Ports {
		if _, err := b.Client.DialPort(step(t), 8000); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("DialPort, which is not declared in Info: %v; want it to be of kind unsupported", err)
		}
		return
	}
	t.Run("Refuse", func(t *testing.T) { portRefuse(t, b) })
	s.python(t)
	t.Run("Echo", func(t *testing.T) { portEcho(t, s, b) })
	t.Run("Listening", func(t *testing.T) { portListening(t, s, b) })
	t.Run("Reset", func(t *testing.T) { portReset(t, s, b) })
	t.Run("Many", func(t *testing.T) { portMany(t, s, b) })
	t.Run("Stall", func(t *testing.T) { portStall(t, s, b) })
	t.Run("End", func(t *testing.T) { portEnd(t, st) })
}

func portRefuse(t *testing.T, b *Box) {
	for port, want := range map[int]sandbox.Kind{0: sandbox.Invalid, -1: sandbox.Invalid, 65536: sandbox.Invalid, 9: sandbox.Unavailable} {
		c, err := b.Client.DialPort(step(t), port)
		if err == nil {
			c.Close()
		}
		if sandbox.KindOf(err) != want {
			t.Errorf("DialPort %d, where nothing listens: %v; want it to be of kind %s", port, err, want)
		}
	}
}

func portEcho(t *testing.T, s *suite, b *Box) {
	for _, addr := range []string{"127.0.0.1", "0.0.0.0", "::1"} {
		_, port := b.listen(t, s, addr, "echo")
		if port == 0 {
			if addr != "::1" {
				t.Fatalf("a program cannot listen on %s", addr)
			}
			t.Logf("the box has no %s", addr)
			continue
		}
		c := b.dialPort(t, port)
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 4<<20/16)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			failed <- errors.Join(err, c.CloseWrite())
		}()
		got, err := io.ReadAll(c)
		if err := errors.Join(err, <-failed); err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		if want := append(sent, strconv.Itoa(len(sent))+" bytes"...); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes came back of %d, or others", addr, len(got), len(want))
		}
	}
}

// portListening: the guest finds the ports on which the tree of a process listens,
// also on those of a program that moved to a session of its own, and not the ports of
// another process.
func portListening(t *testing.T, s *suite, b *Box) {
	first, one := b.listen(t, s, "127.0.0.1", "echo")
	_, other := b.listen(t, s, "0.0.0.0", "echo")
	ports, err := b.Client.Listening(step(t), guestapi.ProcessSelector{PID: first.PID()})
	if err != nil || !slices.Equal(ports, []int{one}) {
		t.Errorf("a program listens on port %d, and another on %d: Listening of the first returns %v, %v", one, other, ports, err)
	}
	const daemon = `
import os, socket, sys, time
if os.fork() == 0:
    os.setsid()
    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
    print(s.getsockname()[1], flush=True)
    time.sleep(1000)
time.sleep(1000)`
	p, said := b.startReady(t, Python(s.h.Python, daemon))
	t.Cleanup(func() { p.Close() })
	want, err := strconv.Atoi(strings.TrimSpace(said))
	if err != nil {
		t.Fatalf("the daemon says %q", said)
	}
	sel := guestapi.ProcessSelector{PID: p.PID()}
	if ports, err := b.Client.Listening(step(t), sel); err != nil || !slices.Equal(ports, []int{want}) {
		t.Errorf("a child listens on port %d: Listening returns %v, %v", want, ports, err)
	}
	if err := b.Client.Signal(step(t), sel, guestapi.SIGKILL); err != nil {
		t.Error(err)
	}
	if _, err := b.Client.Listening(step(t), guestapi.ProcessSelector{Tag: "none"}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Listening of a process that is not there: %v", err)
	}
}

// portReset: a connection that the program resets is an error, not an end of
// file. The reset may come before the client first uses the connection.
func portReset(t *testing.T, s *suite, b *Box) {
	_, port := b.listen(t, s, "127.0.0.1", "reset")
	var got []byte
	c, err := b.Client.DialPort(step(t), port)
	if err == nil {
		defer c.Close()
		got, err = io.ReadAll(c)
	}
	if sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a connection that the program reset gave %q, %v; want an error", got, err)
	}
}

func portMany(t *testing.T, s *suite, b *Box) {
	_, port := b.listen(t, s, "127.0.0.1", "echo")
	var all sync.WaitGroup
	for i := range guestapi.MaxPortConns {
		c := b.dialPort(t, port)
		all.Go(func() {
			text := fmt.Sprintf("connection %d", i)
			if _, err := io.WriteString(c, text); err != nil {
				t.Error(err)
			}
			c.CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprintf("%s%d bytes", text, len(text)) {
				t.Errorf("%s: %q, %v", text, got, err)
			}
		})
	}
	all.Wait()
}

// portStall: a program that does not read its input blocks no other connection.
// Its connections end when they are closed.
func portStall(t *testing.T, s *suite, b *Box) {
	_, port := b.listen(t, s, "127.0.0.1", "ignore")
	var all sync.WaitGroup
	var conns []*guestapi.PortConn
	for range 8 {
		c := b.dialPort(t, port)
		conns = append(conns, c)
		all.Go(func() {
			if n, err := io.Copy(c, zeroes{}); err == nil {
				t.Errorf("a program that does not read was sent %d bytes without end", n)
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // until the buffers are full
	b.Answers(t, "while a program does not read from its port")
	_, echo := b.listen(t, s, "127.0.0.1", "echo")
	c := b.dialPort(t, echo)
	if _, err := io.WriteString(c, "still here"); err != nil {
		t.Error(err)
	}
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "still here10 bytes" {
		t.Errorf("another port meanwhile: %q, %v", got, err)
	}
	for _, c := range conns {
		c.Close()
	}
	all.Wait()
}

// portEnd: a connection ends with the program, and with the box.
func portEnd(t *testing.T, st *site) {
	b := st.box(t)
	p, port := b.listen(t, st.s, "127.0.0.1", "ignore")
	read := func(c *guestapi.PortConn) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		return ended
	}
	ended := read(b.dialPort(t, port))
	b.MustRoot(t, "kill -9 "+pidText(p.PID()))
	waitEnd(t, ended, "its program was killed")
	_, port = b.listen(t, st.s, "127.0.0.1", "ignore")
	ended = read(b.dialPort(t, port))
	if err := b.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	b.Client.Close()
	waitEnd(t, ended, "its box was destroyed")
}

func waitEnd(t *testing.T, ended <-chan error, why string) {
	t.Helper()
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("data came from a program that sends none")
		}
	case <-time.After(stepTime):
		t.Errorf("a connection is still open %v after %s", stepTime, why)
	}
}

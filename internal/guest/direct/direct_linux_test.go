package direct

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/pinned"
)

// A guest is a Listener whose guest answers each line with the same line.
type testGuest struct {
	*Listener
	orders  string // the socket for orders
	address string
}

// newGuest returns a guest that may listen at an address which is free.
func newGuest(t *testing.T, proving time.Duration) *testGuest {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	g := &testGuest{orders: filepath.Join(t.TempDir(), "s"), address: free.Addr().String()}
	g.Listener = NewListener(func(purpose byte) (net.Conn, error) {
		if purpose != guestapi.DirectGuest {
			return nil, errors.New("there is no such purpose")
		}
		near, far := net.Pipe()
		go func() {
			_, _ = io.Copy(far, far)
			far.Close()
		}()
		return near, nil
	})
	g.proving = proving
	l, err := net.Listen("unix", g.orders)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		g.ServeOrders(l)
		close(served)
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
		if conn, err := net.Dial("tcp", g.address); err == nil {
			conn.Close()
			t.Error("the guest listens after its end")
		}
	})
	return g
}

// say writes a text to the socket for orders and returns the answer, which may be empty.
func (g *testGuest) say(t *testing.T, text string) (a guestapi.DirectAnswer, raw string) {
	t.Helper()
	conn, err := net.Dial("unix", g.orders)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, text) // the guest may have heard enough before the end
	_ = conn.(*net.UnixConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	_ = json.Unmarshal(answer, &a)
	return a, string(answer)
}

// order has the guest listen for a new client, which it returns.
func (g *testGuest) order(t *testing.T, name string) *tls.Config {
	t.Helper()
	own, err := pinned.New("driver")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&guestapi.DirectOrder{Address: g.address, Name: name, Client: own.Certificate[0]})
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := g.say(t, string(text)+"\n")
	if answer.Error != "" {
		t.Fatalf("the answer to an order: %s", answer.Error)
	}
	config, err := pinned.Client(own, answer.Certificate, name)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// open connects for a purpose. The error is that of the guest's answer.
func (g *testGuest) open(t *testing.T, config *tls.Config, purpose byte) (*tls.Conn, error) {
	t.Helper()
	plain, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	_ = plain.SetDeadline(time.Now().Add(time.Minute))
	conn := tls.Client(plain, config)
	if _, err := conn.Write([]byte{purpose}); err != nil {
		return nil, err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if answer[0] != guestapi.DirectReady {
		t.Errorf("the guest answers with %q", answer)
	}
	return conn, nil
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	text := bytes.Repeat([]byte("hello, guest\n"), 1<<16)
	go func() { _, _ = conn.Write(text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("an echo of %d bytes: %v", len(text), err)
	}
}

// settled waits until the guest has no unproven connections and as few goroutines as
// before.
func (g *testGuest) settled(t *testing.T, goroutines int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		n := len(g.unproven)
		g.mu.Unlock()
		if n == 0 && runtime.NumGoroutine() <= goroutines {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections without a proof and %d goroutines are left, want none and %d", n, runtime.NumGoroutine(), goroutines)
		}
	}
}

// TestClients: the guest serves only the client of the newest order.
func TestClients(t *testing.T) {
	g, other := newGuest(t, time.Minute), newGuest(t, time.Minute)
	config, others := g.order(t, "box"), other.order(t, "other")
	before := runtime.NumGoroutine()
	conn, err := g.open(t, config, guestapi.DirectGuest)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn)

	refused := func(what string, config *tls.Config) {
		t.Helper()
		if _, err := g.open(t, config, guestapi.DirectGuest); err == nil {
			t.Errorf("the guest serves %s", what)
		}
	}
	stolen := config.Clone() // all but the key
	stranger, err := pinned.New("driver")
	if err != nil {
		t.Fatal(err)
	}
	stolen.Certificates = []tls.Certificate{{Certificate: config.Certificates[0].Certificate, PrivateKey: stranger.PrivateKey}}
	refused("a certificate without its key", stolen)
	unknown := config.Clone()
	unknown.Certificates = []tls.Certificate{stranger}
	refused("an unknown certificate", unknown)
	none := config.Clone()
	none.Certificates = nil
	refused("no certificate", none)
	another := config.Clone()
	another.Certificates = others.Certificates
	refused("the client of another box", another)
	refused("a client that expects another box", others)
	if _, err := g.open(t, config, 'x'); err == nil {
		t.Error("the guest serves an unknown purpose")
	}

	fresh := g.order(t, "box")
	refused("the client of an earlier order", config)
	next, err := g.open(t, fresh, guestapi.DirectGuest)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, next)
	echo(t, conn) // in use before, and still
	conn.Close()
	next.Close()
	g.settled(t, before)
}

// TestStalls: connections that prove nothing keep no others away, and end.
func TestStalls(t *testing.T) {
	g := newGuest(t, time.Minute)
	config := g.order(t, "box")
	before := runtime.NumGoroutine()
	var idle []net.Conn
	for range 10 * maxUnproven {
		conn, err := net.Dial("tcp", g.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		idle = append(idle, conn)
	}
	conn, err := g.open(t, config, guestapi.DirectGuest)
	if err != nil {
		t.Fatalf("the server, beside %d connections that say nothing: %v", len(idle), err)
	}
	echo(t, conn)
	for i, conn := range idle[:len(idle)-maxUnproven] { // the oldest have made room
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Fatalf("connection %d is open: %v", i, err)
		}
	}
	g.order(t, "box") // ends the others
	for i, conn := range idle {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || isTimeout(err) {
			t.Fatalf("connection %d is open after another order: %v", i, err)
		}
	}
	conn.Close()
	g.settled(t, before)
}

// TestProvingEnds: a connection that proves nothing in time is closed.
func TestProvingEnds(t *testing.T) {
	g := newGuest(t, 50*time.Millisecond)
	config := g.order(t, "box")
	before := runtime.NumGoroutine()
	for _, text := range []string{"", "\x16\x03\x01", "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("tcp", g.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, text)
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("after %q the connection stays open", text)
		}
	}
	// The purpose is part of the proof.
	plain, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(time.Minute))
	conn := tls.Client(plain, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a client that wants nothing: %v", err)
	}
	g.settled(t, before)
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// TestProvingBytes: what is read of a connection without a proof is bounded.
func TestProvingBytes(t *testing.T) {
	endless := strings.NewReader(strings.Repeat("x", 10*unprovenBytes))
	c := &boundedConn{Conn: readConn{r: endless}, left: unprovenBytes}
	n, err := io.Copy(io.Discard, struct{ io.Reader }{c})
	if n != unprovenBytes || !errors.Is(err, errTooMuch) {
		t.Errorf("%d bytes were read, and then %v", n, err)
	}
	// The beginning of a ClientHello that never ends, in records of the largest size.
	g := newGuest(t, time.Minute)
	g.order(t, "box")
	before := runtime.NumGoroutine()
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	record := append([]byte{22, 3, 1, 0x40, 0}, bytes.Repeat([]byte{0}, 1<<14)...)
	copy(record[5:], []byte{1, 0, 0xff, 0xff})
	for range 16 {
		if _, err = conn.Write(record); err != nil {
			break
		}
	}
	if _, rerr := io.Copy(io.Discard, conn); isTimeout(err) || isTimeout(rerr) {
		t.Errorf("an endless handshake: %v, %v", err, rerr)
	}
	g.settled(t, before)
}

type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// TestOrders: orders that cannot be obeyed are answered with the reason, or not at all,
// and change nothing.
func TestOrders(t *testing.T) {
	g := newGuest(t, time.Minute)
	config := g.order(t, "box")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	client, err := json.Marshal(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, order, want string }{
		{"nothing", "", ""},
		{"a part", `{"address":`, ""},
		{"no end", strings.Repeat("x", 2*guestapi.MaxDirect), ""},
		{"no JSON", "hello\n", "invalid character"},
		{"no address", `{"name":"box","client":` + string(client) + "}\n", "read the address"},
		{"a name as the address", `{"address":"localhost:1","name":"box","client":` + string(client) + "}\n", "read the address"},
		{"no client", `{"address":"` + g.address + `","name":"box"}` + "\n", "certificate of the other end"},
		{"a port that is taken", `{"address":"` + taken.Addr().String() + `","name":"box","client":` + string(client) + "}\n", "address already in use"},
	} {
		answer, raw := g.say(t, test.order)
		if !strings.Contains(answer.Error, test.want) || (test.want == "") != (raw == "") || answer.Certificate != nil {
			t.Errorf("%s: the answer is %q, want %q in it", test.name, raw, test.want)
		}
	}
	conn, err := g.open(t, config, guestapi.DirectGuest)
	if err != nil {
		t.Fatalf("after orders that were refused: %v", err)
	}
	echo(t, conn)

	// Another address replaces the one before.
	was := g.address
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = free.Addr().String()
	free.Close()
	if conn, err = g.open(t, g.order(t, "box"), guestapi.DirectGuest); err != nil {
		t.Fatal(err)
	}
	echo(t, conn)
	if conn, err := net.Dial("tcp", was); err == nil {
		conn.Close()
		t.Error("the guest listens at the address of an earlier order")
	}
}

// Package direct lets the server of a sandbox connect to its guest over the network of
// the guest's container, by TLS. Both ends know each other's certificate: the server gets
// the guest's, and gives its own, by an order. The order comes by a way that only the
// server has.
//
// Only package guest imports it. A guest has one [Listener], which lives as long as its
// process. A connection is hostile until it has shown the server's certificate: the
// number, the time and the bytes of such connections are bounded.
package direct

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/pinned"
)

const (
	// provingTime bounds how long a connection may take to prove that it is the server's.
	provingTime = 5 * time.Second
	// maxUnproven bounds the connections that have not. One more ends the oldest.
	maxUnproven = 16
	// unprovenBytes bounds what is read of each of them.
	unprovenBytes = 16 << 10
	// orderTime bounds how long an order may take to arrive.
	orderTime = 5 * time.Second
)

// A Dial connects to the part of the guest for which a connection is, such as
// [guestapi.DirectGuest].
type Dial func(purpose byte) (net.Conn, error)

// A Listener listens as the newest order says. Its methods are safe for concurrent use.
type Listener struct {
	dial    Dial
	proving time.Duration // provingTime, except in tests

	mu       sync.Mutex
	listener net.Listener // nil before the first order; guarded by mu
	config   *tls.Config  // that of the newest order; guarded by mu
	unproven []net.Conn   // from the oldest to the newest; guarded by mu
}

// NewListener returns a Listener that connects the server by dial.
func NewListener(dial Dial) *Listener { return &Listener{dial: dial, proving: provingTime} }

// ServeOrders takes the orders that arrive at a socket, one after another, until the
// socket is closed. It then ends listening. Connections that are in use stay.
func (l *Listener) ServeOrders(orders net.Listener) {
	for {
		conn, err := orders.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			l.close()
			return
		case err != nil:
			time.Sleep(10 * time.Millisecond) // until a resource is freed
		default:
			l.take(conn)
		}
	}
}

// take obeys the order of a connection, and answers it.
func (l *Listener) take(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(orderTime))
	line, err := bufio.NewReader(io.LimitReader(conn, guestapi.MaxDirect)).ReadBytes('\n')
	if err != nil {
		return
	}
	var order guestapi.DirectOrder
	var answer guestapi.DirectAnswer
	if err = json.Unmarshal(line, &order); err == nil {
		answer.Certificate, err = l.obey(&order)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(&answer) // who has gone asks again
}

// obey listens for the client of an order, and for no other one any more. It returns the
// certificate that clients are shown.
func (l *Listener) obey(order *guestapi.DirectOrder) ([]byte, error) {
	at, err := netip.ParseAddrPort(order.Address)
	if err != nil {
		return nil, fmt.Errorf("read the address: %w", err)
	}
	own, err := pinned.New(order.Name)
	if err != nil {
		return nil, err
	}
	config, err := pinned.Server(own, order.Client)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil || l.listener.Addr().String() != at.String() {
		listener, err := listen(at)
		if err != nil {
			return nil, err
		}
		if l.listener != nil {
			l.listener.Close()
		}
		l.listener = listener
		go l.serve(listener)
	}
	l.config = config
	l.dropUnproven()
	return own.Certificate[0], nil
}

// listen listens at an address. A server whose machine is lost is noticed in a minute.
func listen(at netip.AddrPort) (net.Listener, error) {
	alive := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}
	return (&net.ListenConfig{KeepAliveConfig: alive}).Listen(context.Background(), "tcp", at.String())
}

// dropUnproven ends the connections that may have begun with the configuration before.
// The caller holds mu.
func (l *Listener) dropUnproven() {
	for _, conn := range l.unproven {
		conn.Close()
	}
	l.unproven = nil
}

func (l *Listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		l.listener.Close()
	}
	l.dropUnproven()
}

// serve accepts connections until the listener is closed.
func (l *Listener) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // until a resource is freed
			continue
		}
		go l.serveConn(conn, l.admit(conn))
	}
}

// admit counts a connection among the unproven ones. It returns the configuration that
// holds for it.
func (l *Listener) admit(conn net.Conn) *tls.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unproven) >= maxUnproven {
		l.unproven[0].Close()
		l.unproven = slices.Delete(l.unproven, 0, 1)
	}
	l.unproven = append(l.unproven, conn)
	return l.config
}

// leave counts a connection no longer among the unproven ones. It returns false if the
// connection was dropped from them.
func (l *Listener) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.unproven, conn)
	if i < 0 {
		return false
	}
	l.unproven = slices.Delete(l.unproven, i, i+1)
	return true
}

// serveConn connects the server to the guest, if the connection is the server's.
func (l *Listener) serveConn(conn net.Conn, config *tls.Config) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(l.proving))
	bounded := &boundedConn{Conn: conn, left: unprovenBytes}
	server := tls.Server(bounded, config)
	var purpose [1]byte
	_, err := io.ReadFull(server, purpose[:]) // after the handshake
	if !l.leave(conn) || err != nil {
		return
	}
	bounded.proven = true
	to, err := l.dial(purpose[0])
	if err != nil {
		return
	}
	defer to.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := server.Write([]byte{guestapi.DirectReady}); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{to, server}, {server, to}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // its end is that of both
			ended <- struct{}{}
		}()
	}
	<-ended
	_ = server.Close() // which tells the other end that nothing is missing
	to.Close()
	<-ended
}

// A boundedConn reads a bounded number of bytes until it is proven. One goroutine uses
// it until then.
type boundedConn struct {
	net.Conn
	left   int
	proven bool
}

var errTooMuch = errors.New("too many bytes before a proof")

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.proven {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

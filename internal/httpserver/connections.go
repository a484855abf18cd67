package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// connections counts the connections of one http.Server: those of principals, and
// apart from them, by the address that they came from, those on which no request
// has shown yet whose they are. So clients without a token take nothing from
// principals.
type connections struct {
	shares *Shares

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// A connection is one that is open. Methods of nil do nothing.
type connection struct {
	shares *Shares
	conn   net.Conn

	mu      sync.Mutex
	hold    *fair.Hold
	known   bool // whose it is
	serving int  // requests under way
	gone    bool
}

type connectionKey struct{}

// connectionOf returns the connection of a request, or nil.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// watch has the server count its connections.
func (cs *connections) watch(srv *http.Server) {
	cs.open = map[net.Conn]*connection{}
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		c := &connection{shares: cs.shares, conn: conn}
		cs.mu.Lock()
		defer cs.mu.Unlock()
		cs.open[conn] = c
		return context.WithValue(ctx, connectionKey{}, c)
	}
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		cs.mu.Lock()
		c := cs.open[conn]
		if state == http.StateClosed || state == http.StateHijacked {
			delete(cs.open, conn)
		}
		cs.mu.Unlock()
		if c == nil {
			return
		}
		switch state {
		case http.StateNew:
			if !c.count(c.shares.newcomers, fair.AddressOf(conn.RemoteAddr().String())) {
				c.cut()
			}
		case http.StateClosed, http.StateHijacked: // which is counted as a stream from then on
			c.forget()
		case http.StateActive, http.StateIdle:
		}
	}
}

// count holds a place of a pool for the connection in a name, instead of the place
// that it has. It reports whether there was one.
func (c *connection) count(pool *fair.Pool, who sandbox.Principal) bool {
	hold, err := pool.Try(fair.Request{Principal: who, Units: 1, Evict: c.evict})
	if err != nil {
		return false
	}
	c.mu.Lock()
	old := c.hold
	if c.hold = hold; c.gone {
		defer hold.Release()
	}
	c.mu.Unlock()
	old.Release()
	return true
}

// ownedBy counts the connection as a principal's. The first principal that is
// shown on it is it, as a proxy may send requests of several.
func (c *connection) ownedBy(who sandbox.Principal) {
	if c == nil {
		return
	}
	c.mu.Lock()
	known := c.known
	c.known = true
	c.mu.Unlock()
	if !known {
		c.count(c.shares.connections, who) // without a place of its own it stays with its address
	}
}

// isKnown reports whether a request on the connection has shown whose it is. There
// is no connection in tests without a network, and nothing to count.
func (c *connection) isKnown() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// begin counts a request in, until end.
func (c *connection) begin() (end func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving++
	if c.hold != nil {
		c.hold.Touch()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serving--
	}
}

// evict closes the connection for another. Without force it does so only while
// no request is under way.
func (c *connection) evict(forced bool) bool {
	c.mu.Lock()
	busy := c.serving > 0
	c.mu.Unlock()
	if busy && !forced {
		return false
	}
	c.cut()
	return true
}

// cut closes the connection. The alert with which TLS ends would have to be
// waited for.
func (c *connection) cut() {
	conn := c.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
	c.forget()
}

// forget gives the connection's place back.
func (c *connection) forget() {
	c.mu.Lock()
	hold := c.hold
	c.gone = true
	c.mu.Unlock()
	hold.Release()
}

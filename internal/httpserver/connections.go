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

// connections counts the connections of one http.Server. A connection counts for
// its principal as soon as a request has identified one. Until then it counts, in
// another pool, for the client's address. So clients without a token cannot take
// connections from principals.
type connections struct {
	shares *Shares

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// A connection is an open connection. ownedBy, isKnown and begin accept nil.
type connection struct {
	shares *Shares
	conn   net.Conn

	mu      sync.Mutex
	hold    *fair.Hold
	known   bool              // its principal is known
	owner   sandbox.Principal // set if known
	serving int               // number of active requests
	gone    bool
}

type connectionKey struct{}

// connectionOf returns the connection of a request, or nil.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// watch makes the server report its connections.
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
		case http.StateClosed, http.StateHijacked: // a hijacked connection counts as a stream from then on
			c.forget()
		case http.StateActive, http.StateIdle:
		}
	}
}

// count acquires a unit of a pool for the connection, and then releases the unit
// that it had. It returns false if the pool has no unit.
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

// ownedBy counts the connection for a principal. Only the first principal of a
// connection counts, because a proxy may send requests of several.
func (c *connection) ownedBy(who sandbox.Principal) {
	if c == nil {
		return
	}
	c.mu.Lock()
	known := c.known
	if !known {
		c.known, c.owner = true, who
	}
	c.mu.Unlock()
	if !known {
		c.count(c.shares.connections, who) // if there is no unit, it continues to count for its address
	}
}

// countsFor returns the principal or the address for which a request counts while
// its own principal is not known.
func (c *connection) countsFor() sandbox.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return c.owner
	}
	return fair.AddressOf(c.conn.RemoteAddr().String())
}

// begin registers a request until end is called.
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

// evict closes the connection to make room. Unless forced, it spares a connection of
// a known principal with an active request. A client without a token could keep a
// request active for ever.
func (c *connection) evict(forced bool) bool {
	c.mu.Lock()
	busy := c.serving > 0 && c.known
	c.mu.Unlock()
	if busy && !forced {
		return false
	}
	c.cut()
	return true
}

// cut closes the connection without TLS's closing alert, which could block.
func (c *connection) cut() {
	netConn(c.conn).Close()
	c.forget()
}

// netConn returns the connection below TLS.
func netConn(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// forget releases the connection's unit.
func (c *connection) forget() {
	c.mu.Lock()
	hold := c.hold
	c.gone = true
	c.mu.Unlock()
	hold.Release()
}

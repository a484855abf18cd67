package network

import (
	"cmp"
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options configure a Gateway.
type Options struct {
	// Network is the policy, in canonical form, and Terms are its terms.
	Network sandbox.Network
	Terms   sandbox.NetworkTerms
	// Secrets are put into requests to their hosts, if the policy allows these
	// hosts.
	Secrets []sandbox.Secret
	// Memory is the soft limit for the memory of a gateway's process, in bytes; 0
	// is the default.
	Memory int64
	// Sums adds checksums to the packets of a process's link, because a kernel at
	// its other end checks them.
	Sums bool

	// The other fields are for tests. They replace name resolution, dialling, the
	// machine's addresses, and the root certificates. Nil means the real one.
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	machine func() *machine
	roots   *x509.CertPool
}

// defaultConnections is the number of connections that may be open at one time if
// the terms name none.
const defaultConnections = 512

// A Gateway decides which destinations a sandbox reaches. Its methods are safe
// for concurrent use.
type Gateway struct {
	terms    sandbox.NetworkTerms
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	host     func() *machine
	names    *names
	resolver *hostResolver // nil with Options.resolve
	log      *log

	changing sync.Mutex // held by Change
	inserts  atomic.Pointer[inserts]
	roots    *x509.CertPool
	headers  atomic.Int64 // of requests under way that may have secrets, in bytes

	policy atomic.Pointer[policy]
	// up and down limit the bytes per second; nil is no limit. bytes counts both
	// directions.
	up, down *rate.Limiter
	bytes    atomic.Int64
	buffers  int64 // bound on the buffers of all connections together, in bytes

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	detach func() // undoes Attach
}

// New returns a gateway, which the caller closes with Close. The error wraps
// [sandbox.Invalid] if the policy is not in canonical form.
func New(opts Options) (*Gateway, error) {
	if err := opts.Network.CheckCanonical(); err != nil {
		return nil, err
	}
	g := &Gateway{terms: opts.Terms, dial: opts.dial, host: opts.machine, log: newLog(), roots: opts.roots}
	g.buffers = cmp.Or(opts.Memory, memoryGoal) * 2 / 3
	in, err := newInserts(opts.Secrets)
	if err != nil {
		return nil, err
	}
	g.inserts.Store(in)
	if g.terms.Connections <= 0 {
		g.terms.Connections = defaultConnections
	}
	if opts.resolve == nil {
		g.resolver = newHostResolver(opts.Terms.Resolver)
		opts.resolve = g.resolver.lookup
	}
	if g.dial == nil {
		g.dial = (&net.Dialer{}).DialContext
	}
	if g.host == nil {
		g.host = watchMachine()
	}
	g.names = newNames(opts.resolve)
	if n := g.terms.BytesPerSecond; n > 0 {
		burst := int(max(n/10, chunk))
		g.up, g.down = rate.NewLimiter(rate.Limit(n), burst), rate.NewLimiter(rate.Limit(n), burst)
	}
	g.policy.Store(newPolicy(opts.Network, opts.Terms.Reachable))
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Close ends all connections and the gateway.
func (g *Gateway) Close() {
	g.cancel()
	for _, f := range g.log.flows() {
		f.stop("")
	}
	if g.detach != nil {
		g.detach()
	}
	g.work.Wait()
}

// Traffic returns the counts, and the connections that ended after the connection
// with the number after.
func (g *Gateway) Traffic(after int64) sandbox.Traffic { return g.log.traffic(after) }

// SetNetwork puts another policy in force, and ends the connections that it does
// not allow. The error wraps [sandbox.Invalid] if the policy is not in canonical
// form.
func (g *Gateway) SetNetwork(n sandbox.Network) error {
	if err := n.CheckCanonical(); err != nil {
		return err
	}
	g.policy.Store(newPolicy(n, g.terms.Reachable))
	for _, f := range g.log.flows() {
		d := g.decide(f.dst)
		// A connection that was allowed by its address was not inspected, so a
		// name cannot allow it now. A name that the connection was not opened for
		// cannot allow it either.
		byName := len(d.names) > 0
		if d.blocked != "" || byName && !(len(f.names) > 0 && containsAll(d.names, f.names)) || byName && f.opaque.Load() && !d.opaque {
			f.stop(sandbox.BlockedChange)
		}
	}
	return nil
}

// network returns the policy in force.
func (g *Gateway) network() sandbox.Network { return g.policy.Load().network }

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// decide decides about a connection by the policy in force.
func (g *Gateway) decide(dst netip.AddrPort) decision {
	return g.policy.Load().decide(dst, g.names.of(dst.Addr()), g.host())
}

// A flow is a connection that is allowed and open.
type flow struct {
	g              *Gateway
	dst            netip.AddrPort
	names          []string    // the names that it was allowed for, if any
	opaque         atomic.Bool // its protocol does not name the host
	in             *inserts
	secretNames    []string // the names of its address that secrets are for
	clearNames     []string // those with header rules that need TLS
	sent, received atomic.Int64
	ctx            context.Context
	cancel         context.CancelFunc

	mu  sync.Mutex
	rec sandbox.Connection
}

// open decides about a connection and begins it. It returns nil for a connection
// that is blocked, and records it.
func (g *Gateway) open(proto sandbox.Protocol, dst netip.AddrPort) *flow {
	dst = netip.AddrPortFrom(dst.Addr().Unmap().WithZone(""), dst.Port())
	p := g.policy.Load()
	known := g.names.of(dst.Addr())
	d := p.decide(dst, known, g.host())
	rec := sandbox.Connection{Protocol: proto, Host: d.host, Address: dst.Addr(), Port: dst.Port(), Blocked: d.blocked}
	if rec.Blocked != "" {
		g.log.block(rec)
		return nil
	}
	f := &flow{g: g, dst: dst, names: d.names, in: g.inserts.Load(), rec: rec}
	if proto == sandbox.ProtocolTCP {
		if len(f.names) > 0 {
			known = f.names // the other names of the address are not allowed
		}
		f.secretNames, f.clearNames = f.in.namesFor(known, dst.Port()), f.in.clearNames(known, dst.Port())
	}
	f.rec.Started = time.Now().UTC()
	f.ctx, f.cancel = context.WithCancel(g.ctx)
	if g.spent() || !g.log.begin(f, g.terms.Connections) {
		f.cancel()
		rec.Blocked = sandbox.BlockedLimit
		g.log.block(rec)
		return nil
	}
	if g.policy.Load() != p || g.inserts.Load() != f.in {
		// The caller that changed the policy may not have seen f.
		f.stop(sandbox.BlockedChange)
	}
	return f
}

// spent reports whether the sandbox has used up its byte limit.
func (g *Gateway) spent() bool { return g.terms.Bytes > 0 && g.bytes.Load() >= g.terms.Bytes }

// connection returns the record of f so far.
func (f *flow) connection() sandbox.Connection {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.rec
	c.Sent, c.Received = f.sent.Load(), f.received.Load()
	return c
}

// stop ends f, and records the reason if it is not "". The first reason wins.
func (f *flow) stop(why sandbox.BlockReason) {
	f.mu.Lock()
	if f.rec.Blocked == "" {
		f.rec.Blocked = why
	}
	f.mu.Unlock()
	f.cancel()
}

// named records the host that f turned out to be for.
func (f *flow) named(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rec.Host = host
}

// end records f. The function that opened f calls it once.
func (f *flow) end() {
	f.cancel()
	f.g.log.end(f)
}

// closeWith closes c when f ends.
func (f *flow) closeWith(c net.Conn) {
	context.AfterFunc(f.ctx, func() { c.Close() })
}

// chunk is the size of one copy, in bytes.
const chunk = 32 << 10

// carry takes n bytes off the limits, and waits for the rate limit. It returns an
// error when f ends. If the byte limit is used up, it ends f itself.
func (f *flow) carry(limit *rate.Limiter, n int) error {
	if total := f.g.bytes.Add(int64(n)); f.g.terms.Bytes > 0 && total > f.g.terms.Bytes {
		f.stop(sandbox.BlockedLimit)
		return f.ctx.Err()
	}
	if limit == nil {
		return nil
	}
	return limit.WaitN(f.ctx, n)
}

// An upstream is a connection to the outside whose bytes are counted and limited.
type upstream struct {
	net.Conn
	f *flow
}

func (u *upstream) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b[:min(len(b), chunk)])
	if n > 0 {
		u.f.received.Add(int64(n))
		if err := u.f.carry(u.f.g.down, n); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (u *upstream) Write(b []byte) (int, error) {
	done := 0
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if err := u.f.carry(u.f.g.up, len(part)); err != nil {
			return done, err
		}
		n, err := u.Conn.Write(part)
		u.f.sent.Add(int64(n))
		done += n
		if err != nil {
			return done, err
		}
		b = b[n:]
	}
	return done, nil
}

func (u *upstream) CloseWrite() error { return closeWrite(u.Conn) }

// closeWrite closes the write side of c, if c has one.
func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// dialTimeout bounds the time to open a connection.
const dialTimeout = 10 * time.Second

// connect opens a connection to the destination of f. f closes it when it ends.
func (f *flow) connect(network string) (*upstream, error) {
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	var c net.Conn
	var err error
	for _, to := range f.addresses() {
		if c, err = f.g.dial(ctx, network, to.String()); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	f.closeWith(c)
	return &upstream{Conn: c, f: f}, nil
}

// addresses returns the addresses of the destination of f, in the order in which
// to try them. A program of this machine may listen on either loopback address. UDP
// always takes the first, because its connections open without a listener.
func (f *flow) addresses() []netip.AddrPort {
	if f.dst.Addr() != thisMachine4 {
		return []netip.AddrPort{f.dst}
	}
	return []netip.AddrPort{
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), f.dst.Port()),
		netip.AddrPortFrom(netip.IPv6Loopback(), f.dst.Port()),
	}
}

package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/raw"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A world is a gateway with a guest on one side, which has a network stack of
// its own and may do as it likes, and on the other an internet of names and
// servers, all of this process.
type world struct {
	t     testing.TB
	g     *Gateway
	guest *stack.Stack
	wire  int // the guest's end of the link

	mu      sync.Mutex
	names   map[string][]netip.Addr
	servers map[string]string // where an address and port really are
	dialled []string
	asked   []string
}

// The addresses of the world.
var (
	webAddr      = netip.MustParseAddr("93.184.216.34")
	web6Addr     = netip.MustParseAddr("2606:2800:220:1::1")
	otherAddr    = netip.MustParseAddr("104.16.0.9")
	hostAddr     = netip.MustParseAddr("104.20.0.1") // of the machine itself
	privateAddr  = netip.MustParseAddr("10.1.2.3")
	metadataAddr = netip.MustParseAddr("169.254.169.254")
)

func newWorld(t testing.TB, n sandbox.Network, terms sandbox.NetworkTerms) *world {
	t.Helper()
	return newWorldWith(t, Options{Network: n, Terms: terms})
}

func newWorldWith(t testing.TB, opts Options) *world {
	t.Helper()
	w := &world{
		t: t,
		names: map[string][]netip.Addr{
			"web.example":     {webAddr, web6Addr},
			"a.web.example":   {webAddr},
			"other.example":   {otherAddr},
			"shared.example":  {webAddr}, // another tenant of the same address
			"rebind.example":  {privateAddr, metadataAddr},
			"half.example":    {webAddr, privateAddr},
			"machine.example": {hostAddr},
			"mapped.example":  {netip.MustParseAddr("::ffff:10.1.2.3")},
			"dns.google":      {netip.MustParseAddr("8.8.8.8")},
		},
		servers: map[string]string{},
	}
	opts.resolve, opts.dial = w.resolve, w.dial
	opts.machine = func() *machine { return &machine{known: true, own: []netip.Addr{hostAddr}} }
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	w.g = g
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	link, _, err := openLink(fds[0], false)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Attach(link); err != nil {
		t.Fatal(err)
	}
	w.guest, w.wire = guestStack(t, fds[1]), fds[1]
	t.Cleanup(func() {
		g.Close()
		w.guest.Close()
		w.guest.Wait()
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return w
}

// guestStack is what a sandbox's kernel has.
func guestStack(t testing.TB, fd int) *stack.Stack {
	t.Helper()
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: MTU, EthernetHeader: true, Address: tcpip.LinkAddress(GuestMAC), PacketDispatchMode: fdbased.RecvMMsg,
		RXChecksumOffload: true, TXChecksumOffload: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		RawFactory:         raw.EndpointFactory{},
	})
	if err := s.CreateNIC(1, link); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		proto    tcpip.NetworkProtocolNumber
		own, via netip.Prefix
		all      tcpip.Subnet
	}{{ipv4.ProtocolNumber, Guest4, Gateway4, header.IPv4EmptySubnet}, {ipv6.ProtocolNumber, Guest6, Gateway6, header.IPv6EmptySubnet}} {
		pa := tcpip.ProtocolAddress{Protocol: a.proto, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(a.own.Addr().AsSlice()), PrefixLen: a.own.Bits()}}
		if err := s.AddProtocolAddress(1, pa, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
		via := tcpip.AddrFromSlice(a.via.Addr().AsSlice())
		if err := s.AddStaticNeighbor(1, a.proto, via, tcpip.LinkAddress(GatewayMAC)); err != nil {
			t.Fatal(err)
		}
		s.AddRoute(tcpip.Route{Destination: a.all, Gateway: via, NIC: 1})
	}
	return s
}

func (w *world) resolve(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	addrs, ok := w.names[strings.TrimSuffix(host, ".")]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// setName changes what a name stands for.
func (w *world) setName(name string, addrs ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = addrs
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, network+" "+address)
	real, ok := w.servers[network+" "+address]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("dial %s: %w", address, unix.ECONNREFUSED)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, real)
}

// serve has handle serve the connections to an address, of which every name
// shares the port.
func (w *world) serve(port uint16, handle func(net.Conn), addrs ...netip.Addr) {
	w.t.Helper()
	l := w.listen(port, addrs...)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
}

// listen returns what accepts the connections to an address.
func (w *world) listen(port uint16, addrs ...netip.Addr) net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.servers["tcp "+netip.AddrPortFrom(a, port).String()] = l.Addr().String()
	}
	return l
}

// echo sends back what comes.
func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// connect opens a connection from within the sandbox.
func (w *world) connect(a netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	proto := ipv4.ProtocolNumber
	if a.Is6() {
		proto = ipv6.ProtocolNumber
	}
	c, err := gonet.DialContextTCP(ctx, w.guest, tcpip.FullAddress{Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: port}, proto)
	if err != nil {
		return nil, err // not a connection that is nil
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c, nil
}

// mustConnect is for what is allowed.
func (w *world) mustConnect(a netip.Addr, port uint16) net.Conn {
	w.t.Helper()
	c, err := w.connect(a, port)
	if err != nil {
		w.t.Fatalf("connect to %s port %d: %v", a, port, err)
	}
	return c
}

// udp opens a flow from within the sandbox.
func (w *world) udp(a netip.Addr, port uint16) net.Conn {
	w.t.Helper()
	proto := ipv4.ProtocolNumber
	if a.Is6() {
		proto = ipv6.ProtocolNumber
	}
	c, err := gonet.DialUDP(w.guest, nil, &tcpip.FullAddress{Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: port}, proto)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// lookup asks the sandbox's DNS server, as a program in it does.
func (w *world) lookup(name string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
		if strings.HasPrefix(network, "udp") {
			return w.udp(Gateway4.Addr(), 53), nil
		}
		return w.connect(Gateway4.Addr(), 53)
	}}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	return r.LookupNetIP(ctx, "ip", name+".")
}

func (w *world) mustLookup(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if _, err := w.lookup(name); err != nil {
			w.t.Fatalf("look up %s: %v", name, err)
		}
	}
}

// dials returns which connections the gateway opened.
func (w *world) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.dialled...)
}

// blocked reports whether a destination was blocked for that reason.
func (w *world) blocked(host string, why sandbox.BlockReason) bool {
	for _, d := range w.g.Traffic(0).Destinations {
		if d.Host == host && d.Blocked == why {
			return true
		}
	}
	return false
}

// wantBlocked waits until it is: records are made when connections end.
func (w *world) wantBlocked(host string, why sandbox.BlockReason) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !w.blocked(host, why); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Errorf("%s is not recorded as blocked (%s): %+v", host, why, w.g.Traffic(0))
			return
		}
	}
}

// refused reports whether err is what a program sees of a refused connection.
func refused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "refused") || errors.Is(err, unix.ECONNREFUSED))
}

// ended reports whether a connection ended, and not by the test's patience.
func ended(err error) bool {
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !isTimeout(err)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// unreachable reports whether a program that sent a datagram is told that it
// arrives nowhere. A connection of the tests' stack does not wake up for that.
func unreachable(c net.Conn) bool {
	for range 500 {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 10)); !isTimeout(err) {
			return err != nil
		}
	}
	return false
}

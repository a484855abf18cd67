package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The addresses of the link between a sandbox and its gateway. They are the same
// for every sandbox. Nothing else uses their ranges, so they hide no address that
// an operator might name.
var (
	Guest4   = netip.MustParsePrefix("198.18.0.2/30")
	Gateway4 = netip.MustParsePrefix("198.18.0.1/30")
	Guest6   = netip.MustParsePrefix("fd67:6c6f:7665:626f::2/64")
	Gateway6 = netip.MustParsePrefix("fd67:6c6f:7665:626f::1/64")

	// thisMachine4 is the address of [sandbox.ThisMachine] for sandboxes. The
	// gateway connects to a loopback address instead.
	thisMachine4 = netip.MustParseAddr("198.18.0.5")

	GuestMAC   = net.HardwareAddr{0x02, 0x67, 0x6c, 0x6f, 0x76, 0x02}
	GatewayMAC = net.HardwareAddr{0x02, 0x67, 0x6c, 0x6f, 0x76, 0x01}
)

// MTU is the link's MTU, in bytes.
const MTU = 65000

const nic tcpip.NICID = 1

// memoryGoal is the default soft limit for a gateway's memory, in bytes. The
// buffers of connections have bounds of their own, and take at most two thirds of
// it.
const memoryGoal = 192 << 20

// Bounds on the buffers of one connection, in each direction, in bytes.
const (
	minBuffer = 16 << 10
	maxBuffer = 512 << 10
	// maxHalfOpen bounds the connections that are being opened.
	maxHalfOpen = 256
	// timeWait is how long the ports of a connection stay reserved after its end.
	// The link delays no segment, so it can be short.
	timeWait = time.Second
	// synRetries is how often SYN-ACK is sent again. A sandbox that does not
	// answer is given up after some seconds.
	synRetries = 2
	// udpIdle is how long a UDP flow stays open without a datagram.
	udpIdle     = 60 * time.Second
	maxDatagram = 64 << 10
)

// Attach connects the gateway to the end of a link. It is called once.
func (g *Gateway) Attach(link stack.LinkEndpoint) error {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	g.detach = func() {
		s.Close()
		s.Wait()
	}
	if err := g.tune(s); err != nil {
		return err
	}
	most := min(maxHalfOpen, g.terms.Connections)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, most, g.acceptTCP).HandlePacket)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, g.acceptUDP).HandlePacket)
	if err := s.CreateNIC(nic, newFilter(link, g.log)); err != nil {
		return fmt.Errorf("make interface: %s", err)
	}
	// The gateway receives all packets of the sandbox, and answers with any
	// source address.
	if err := s.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("receive all packets: %s", err)
	}
	if err := s.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("allow all source addresses: %s", err)
	}
	for _, a := range []struct {
		proto      tcpip.NetworkProtocolNumber
		own, guest netip.Prefix
		everywhere tcpip.Subnet
	}{
		{ipv4.ProtocolNumber, Gateway4, Guest4, header.IPv4EmptySubnet},
		{ipv6.ProtocolNumber, Gateway6, Guest6, header.IPv6EmptySubnet},
	} {
		own := tcpip.ProtocolAddress{Protocol: a.proto, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(a.own.Addr().AsSlice()), PrefixLen: a.own.Bits(),
		}}
		if err := s.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("set address %s: %s", a.own, err)
		}
		if err := s.AddStaticNeighbor(nic, a.proto, tcpip.AddrFromSlice(a.guest.Addr().AsSlice()), tcpip.LinkAddress(GuestMAC)); err != nil {
			return fmt.Errorf("set neighbour %s: %s", a.guest, err)
		}
		s.AddRoute(tcpip.Route{Destination: a.everywhere, NIC: nic})
		if err := g.listenDNS(s, a.proto, own.AddressWithPrefix.Address); err != nil {
			return err
		}
	}
	return nil
}

// tune bounds the resources of connections.
func (g *Gateway) tune(s *stack.Stack) error {
	buffer := min(max(int(g.buffers)/(2*g.terms.Connections), minBuffer), maxBuffer)
	sack, wait, reuse := tcpip.TCPSACKEnabled(true), tcpip.TCPTimeWaitTimeoutOption(timeWait), tcpip.TCPModerateReceiveBufferOption(false)
	retries := tcpip.TCPSynRetriesOption(synRetries)
	in := tcpip.TCPReceiveBufferSizeRangeOption{Min: minBuffer / 4, Default: buffer, Max: buffer}
	out := tcpip.TCPSendBufferSizeRangeOption{Min: minBuffer / 4, Default: buffer, Max: buffer}
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &wait, &reuse, &retries, &in, &out} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("set %T: %s", o, err)
		}
	}
	return nil
}

func (g *Gateway) listenDNS(s *stack.Stack, proto tcpip.NetworkProtocolNumber, own tcpip.Address) error {
	at := tcpip.FullAddress{NIC: nic, Addr: own, Port: portDNS}
	packets, err := gonet.DialUDP(s, &at, nil, proto)
	if err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	conns, err := gonet.ListenTCP(s, at, proto)
	if err != nil {
		packets.Close()
		return fmt.Errorf("listen for DNS: %w", err)
	}
	context.AfterFunc(g.ctx, func() { packets.Close(); conns.Close() })
	g.work.Go(func() { g.serveDNS(g.ctx, packets) })
	g.work.Go(func() { g.serveDNSConns(g.ctx, conns) })
	return nil
}

// destinationAddress returns the destination of a packet from a sandbox.
func destinationAddress(id stack.TransportEndpointID) netip.AddrPort {
	a, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(a, id.LocalPort)
}

// acceptTCP decides about a connection and serves it. A blocked connection is
// reset at once, so that no program waits for it. If the destination does not
// accept the connection, the sandbox's connection is reset, too.
func (g *Gateway) acceptTCP(r *tcp.ForwarderRequest) {
	f := g.open(sandbox.ProtocolTCP, destinationAddress(r.ID()))
	if f == nil {
		r.Complete(true)
		return
	}
	defer f.end()
	up, err := f.connect("tcp")
	if err != nil {
		r.Complete(true)
		return
	}
	defer up.Close()
	var wq waiter.Queue
	ep, terr := r.CreateEndpoint(&wq)
	r.Complete(terr != nil)
	if terr != nil {
		return
	}
	guest := gonet.NewTCPConn(&wq, ep)
	defer guest.Close()
	f.closeWith(guest)
	if len(f.names) > 0 || len(f.secretNames) > 0 || len(f.clearNames) > 0 {
		f.check(guest, up)
	} else {
		f.splice(guest, up)
	}
}

// acceptUDP decides about the first datagram of a flow and serves the flow. A
// blocked datagram gets the answer "port unreachable".
func (g *Gateway) acceptUDP(r *udp.ForwarderRequest) bool {
	f := g.open(sandbox.ProtocolUDP, destinationAddress(r.ID()))
	if f == nil {
		return false
	}
	var wq waiter.Queue
	ep, terr := r.CreateEndpoint(&wq)
	if terr != nil {
		f.end()
		return false
	}
	guest := gonet.NewUDPConn(&wq, ep)
	go func() {
		defer f.end()
		defer guest.Close()
		up, err := f.connect("udp")
		if err != nil {
			return
		}
		defer up.Close()
		f.closeWith(guest)
		f.relay(guest, up)
	}()
	return true
}

// relay copies datagrams in both directions until none comes for udpIdle.
func (f *flow) relay(guest, up net.Conn) {
	go func() {
		defer f.cancel()
		buf := make([]byte, maxDatagram)
		for {
			n, err := up.Read(buf)
			if err != nil {
				return
			}
			_ = guest.SetReadDeadline(time.Now().Add(udpIdle))
			if _, err := guest.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	defer f.cancel()
	buf := make([]byte, maxDatagram)
	for {
		_ = guest.SetReadDeadline(time.Now().Add(udpIdle))
		n, err := guest.Read(buf)
		if err != nil {
			return
		}
		if len(f.names) > 0 && isQUIC(f.dst.Port(), buf[:n]) {
			f.stop(sandbox.BlockedQUIC)
			return
		}
		if _, err := up.Write(buf[:n]); err != nil {
			return
		}
	}
}

// isQUIC reports whether a datagram may begin a QUIC connection. QUIC encrypts
// the server name with keys that only a full parser of QUIC can derive.
func isQUIC(port uint16, b []byte) bool {
	const longHeader, minInitial = 0xc0, 1200
	return port == 443 || port == 80 || len(b) >= minInitial && b[0]&longHeader == longHeader
}

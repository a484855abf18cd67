package network

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ask sends one question to the sandbox's DNS server and returns the answer's
// code and its records.
func (w *world) ask(name string, kind dnsmessage.Type) (dnsmessage.RCode, int) {
	w.t.Helper()
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		w.t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.udp(Gateway4.Addr(), portDNS)
	defer c.Close()
	if _, err := c.Write(b); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, 1500)
	got, err := c.Read(buf)
	if err != nil {
		w.t.Fatalf("%s %s: %v", kind, name, err)
	}
	if err := m.Unpack(buf[:got]); err != nil || m.ID != 7 {
		w.t.Fatalf("%s %s: %v, %v", kind, name, m, err)
	}
	return m.RCode, len(m.Answers)
}

// TestTunnel has a sandbox try to carry data by DNS.
func TestTunnel(t *testing.T) {
	w := newWorld(t, "*.web.example", sandbox.NetworkTerms{})
	for _, kind := range []dnsmessage.Type{
		dnsmessage.TypeTXT, dnsmessage.TypeMX, dnsmessage.TypeNS, dnsmessage.TypeSRV, dnsmessage.TypeCNAME, dnsmessage.TypeALL, dnsmessage.Type(10),
	} {
		if code, n := w.ask("a.web.example", kind); code != dnsmessage.RCodeRefused || n != 0 {
			t.Errorf("%s of an allowed name: %s with %d answers", kind, code, n)
		}
	}
	w.wantBlocked("a.web.example", sandbox.BlockedQuestion)
	for _, kind := range []dnsmessage.Type{typeHTTPS, typeSVCB} { // every browser asks: no answer, which would have keys in it
		if code, n := w.ask("a.web.example", kind); code != dnsmessage.RCodeSuccess || n != 0 {
			t.Errorf("%s of an allowed name: %s with %d answers", kind, code, n)
		}
	}
	for _, name := range []string{
		strings.Repeat("x", 63) + ".evil.example", "secret.evil.example", "web.example", "127.1", "0x7f000001", "2130706433", "017700000001",
	} {
		if code, n := w.ask(name, dnsmessage.TypeA); code != dnsmessage.RCodeNameError || n != 0 {
			t.Errorf("%s: %s with %d answers", name, code, n)
		}
	}
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	if len(asked) > 0 {
		t.Errorf("upstream was asked for %q", asked)
	}
	// Names below an allowed domain may carry data to whoever answers for it:
	// so many that it is slow.
	if l := w.g.names.limit.Limit(); l != questionsPerSecond {
		t.Errorf("%v questions a second", l)
	}
	w.g.names.limit.SetLimit(0) // as if they all came at once, however slow this machine is
	refusals := 0
	for i := range questionsBurst + 100 {
		if code, _ := w.ask(fmt.Sprintf("%d.web.example", i), dnsmessage.TypeA); code == dnsmessage.RCodeRefused {
			refusals++
		}
	}
	if refusals < 100 {
		t.Errorf("of %d names at once %d were refused", questionsBurst+100, refusals)
	}
	// Another DNS server, by either protocol.
	if _, err := w.connect(netip.MustParseAddr("8.8.8.8"), portDNS); !refused(err) {
		t.Errorf("TCP to another server: %v", err)
	}
}

// frame returns a packet of the sandbox's as it is on the link.
func frame(kind tcpip.NetworkProtocolNumber, packet []byte) []byte {
	b := make([]byte, header.EthernetMinimumSize, header.EthernetMinimumSize+len(packet))
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(GuestMAC), DstAddr: tcpip.LinkAddress(GatewayMAC), Type: kind,
	})
	return append(b, packet...)
}

// packet4 returns an IPv4 packet.
func packet4(from, to netip.Addr, proto uint8, payload []byte) []byte {
	b := make([]byte, header.IPv4MinimumSize, header.IPv4MinimumSize+len(payload))
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(cap(b)), TTL: 64, Protocol: proto,
		SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice()),
	})
	h.SetChecksum(^h.CalculateChecksum())
	return append(b, payload...)
}

func syn(from, to netip.Addr, srcPort, dstPort uint16) []byte {
	b := make([]byte, header.TCPMinimumSize)
	h := header.TCP(b)
	h.Encode(&header.TCPFields{SrcPort: srcPort, DstPort: dstPort, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	xsum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, tcpip.AddrFromSlice(from.AsSlice()), tcpip.AddrFromSlice(to.AsSlice()), uint16(len(b)))
	h.SetChecksum(^h.CalculateChecksum(checksum.Combine(xsum, 0)))
	return packet4(from, to, uint8(header.TCPProtocolNumber), b)
}

// send puts a frame on the link once there is room for it.
func (w *world) send(frame []byte) {
	w.t.Helper()
	for {
		err := unix.Sendto(w.wire, frame, 0, nil)
		if err == nil {
			return
		}
		n := 0
		if err == unix.EAGAIN {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(w.wire), Events: unix.POLLOUT}}, 20_000)
		}
		if err != unix.EINTR && (err != nil || n == 0) {
			w.t.Fatalf("nothing takes frames any more: %v", err)
		}
	}
}

// TestProtocols has a sandbox that can send any packet send what is neither TCP
// nor UDP, or not its own.
func TestProtocols(t *testing.T) {
	w := newWorld(t, "internet", sandbox.NetworkTerms{})
	w.serve(80, echo, webAddr)
	guest := Guest4.Addr()
	echoRequest := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	for _, proto := range []uint8{1, 2, 4, 41, 47, 50, 132, 255} {
		w.send(frame(header.IPv4ProtocolNumber, packet4(guest, otherAddr, proto, echoRequest)))
	}
	w.wantBlocked(otherAddr.String(), sandbox.BlockedProtocol)
	before := w.guest.Stats().ICMP.V4.PacketsReceived.EchoReply.Value()
	// From an address that is not the sandbox's, and by a way of its own choice.
	w.send(frame(header.IPv4ProtocolNumber, syn(netip.MustParseAddr("198.18.0.77"), webAddr, 1000, 80)))
	w.send(frame(header.IPv4ProtocolNumber, syn(netip.MustParseAddr("127.0.0.1"), webAddr, 1000, 80)))
	routed := syn(guest, webAddr, 1000, 80)
	routed[0] = 0x46
	w.send(frame(header.IPv4ProtocolNumber, routed))
	c := w.mustConnect(webAddr, 80)
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if d := w.dials(); len(d) != 1 {
		t.Errorf("the gateway opened %q", d)
	}
	if got := w.guest.Stats().ICMP.V4.PacketsReceived.EchoReply.Value(); got != before {
		t.Errorf("something answered a ping for %s", otherAddr)
	}
}

// TestHalfOpenFlood has a sandbox begin connections that it never finishes.
func TestHalfOpenFlood(t *testing.T) {
	const most = 64
	w := newWorld(t, "internet", sandbox.NetworkTerms{Connections: most})
	w.serve(80, echo, webAddr)
	other := newWorld(t, "internet", sandbox.NetworkTerms{})
	other.serve(80, echo, webAddr)
	before := runtime.NumGoroutine()
	// From addresses of its own that the sandbox's kernel does not know of.
	for i := range 10000 {
		_ = unix.Sendto(w.wire, frame(header.IPv4ProtocolNumber, syn(Guest4.Addr(), webAddr, uint16(20000+i), 80)), unix.MSG_DONTWAIT, nil)
	}
	other.mustConnect(webAddr, 80)
	if n := runtime.NumGoroutine() - before; n > 20*most {
		t.Errorf("%d goroutines for connections that are half open", n)
	}
	open := len(w.g.log.flows())
	if open > most {
		t.Errorf("%d connections, of at most %d", open, most)
	}
}

// TestTenThousandConnections has a sandbox open as many as it can.
func TestTenThousandConnections(t *testing.T) {
	const most = 100
	w := newWorld(t, "internet", sandbox.NetworkTerms{Connections: most})
	w.serve(80, echo, webAddr)
	open, refusals := 0, 0
	for range 10000 {
		c, err := w.connect(webAddr, 80)
		switch {
		case err == nil:
			open++
			if open <= most {
				fmt.Fprint(c, "x")
			}
		case refused(err):
			refusals++
		default:
			t.Fatal(err)
		}
	}
	if open != most || refusals != 10000-most {
		t.Errorf("%d open and %d refused, want %d open", open, refusals, most)
	}
	w.wantBlocked(webAddr.String(), sandbox.BlockedLimit)
	for _, d := range w.g.Traffic(0).Destinations {
		if d.Blocked == sandbox.BlockedLimit && d.Connections != 10000-most {
			t.Errorf("the record counts %d", d.Connections)
		}
	}
}

// TestSlowReader has a sandbox ask for much and take nothing.
func TestSlowReader(t *testing.T) {
	w := newWorld(t, "internet", sandbox.NetworkTerms{Connections: 32})
	w.serve(80, func(c net.Conn) { _, _ = io.Copy(c, neverEnding{}) }, webAddr)
	w.serve(81, echo, webAddr)
	for range 8 {
		w.mustConnect(webAddr, 80)
	}
	var held int64
	for range 200 { // until it moves no more
		now := w.g.bytes.Load()
		if now > 0 && now == held {
			break
		}
		held = now
		time.Sleep(20 * time.Millisecond)
	}
	if held > 64<<20 {
		t.Errorf("%d bytes are held for 8 connections that nobody reads", held)
	}
	c := w.mustConnect(webAddr, 81)
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }

func TestByteLimit(t *testing.T) {
	w := newWorld(t, "internet", sandbox.NetworkTerms{Bytes: 1 << 20})
	w.serve(80, func(c net.Conn) { _, _ = io.Copy(c, neverEnding{}) }, webAddr)
	c := w.mustConnect(webAddr, 80)
	n, err := io.Copy(io.Discard, c)
	if n > 1<<20 || isTimeout(err) {
		t.Errorf("%d bytes came, %v", n, err)
	}
	w.wantBlocked(webAddr.String(), sandbox.BlockedLimit)
	if _, err := w.connect(webAddr, 80); !refused(err) {
		t.Errorf("a connection after the last byte: %v", err)
	}
}

func TestRateLimit(t *testing.T) {
	const rate = 4 << 20
	w := newWorld(t, "internet", sandbox.NetworkTerms{BytesPerSecond: rate})
	w.serve(80, func(c net.Conn) { _, _ = io.Copy(c, neverEnding{}) }, webAddr)
	c := w.mustConnect(webAddr, 80)
	start := time.Now()
	if _, err := io.CopyN(io.Discard, c, rate); err != nil {
		t.Fatal(err)
	}
	// A tenth may come at once; the rest cannot come sooner, however busy the
	// machine is.
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("%d bytes took %v at %d a second", rate, took, rate)
	}
}

// split has a record of a hello begin with one of so many bytes.
func split(record []byte, n int) []byte {
	begin := append([]byte{recordHandshake, 3, 3, 0, byte(n)}, record[recordHeader:][:n]...)
	rest := append(bytes.Clone(record[:recordHeader]), record[recordHeader+n:]...)
	binary.BigEndian.PutUint16(rest[3:], uint16(len(rest)-recordHeader))
	return append(begin, rest...)
}

// TestSecondHello has a client name another server when it is asked to say
// hello again.
func TestSecondHello(t *testing.T) {
	first, second := clientHello(t, "web.example"), clientHello(t, "shared.example")
	same := clientHello(t, "web.example")
	data := []byte{recordApplicationData, 3, 3, 0, 1, 'x'}
	warning := []byte{recordAlert, 3, 3, 0, 2, 1, 90} // the user cancelled
	change := []byte{recordChangeCipherSpec, 3, 3, 0, 1, 1}
	// What a client sends last that resumes a session, when it begins like a hello.
	finished := append([]byte{recordHandshake, 3, 3, 0, 40, messageClientHello, 0xa7}, make([]byte, 38)...)
	between := func(b []byte, then ...byte) []byte { return slices.Concat(first, b, then) }
	for _, c := range []struct {
		name  string
		bytes []byte
		ok    bool
	}{
		{"one", append(bytes.Clone(first), data...), true},
		{"the same again", append(bytes.Clone(first), same...), true},
		{"another", append(bytes.Clone(first), second...), false},
		{"another after data", append(append(bytes.Clone(first), data...), second...), false},
		{"another after a warning", between(warning, second...), false},
		{"the same after a warning", between(warning, same...), true},
		{"a warning alone", between(warning), true},
		{"another after many warnings", between(bytes.Repeat(warning, 1000), second...), false},
		{"another after an empty handshake", between([]byte{recordHandshake, 3, 3, 0, 0}, second...), false},
		{"another after a heartbeat", between([]byte{recordHeartbeat, 3, 3, 0, 1, 1}, second...), false},
		{"another after an unknown record", between([]byte{99, 3, 3, 0, 1, 1}, second...), false},
		{"another after a change of ciphers", between(change, second...), false},
		{"the same after a change of ciphers", between(change, same...), true},
		{"encrypted after a change of ciphers", between(change, slices.Concat(finished, data)...), true},
		{"encrypted without a change of ciphers", between(finished), false},
		{"a part of another after a change of ciphers", between(change, split(second, 3)...), false},
		{"two in one record", func() []byte {
			b := append(bytes.Clone(first), second[recordHeader:]...)
			binary.BigEndian.PutUint16(b[3:], uint16(len(b)-recordHeader))
			return b
		}(), false},
	} {
		var out bytes.Buffer
		err := copyRecords(t.Context(), &out, bytes.NewReader(c.bytes), "web.example")
		if err == io.EOF {
			err = nil
		}
		if (err == nil) != c.ok || bytes.Contains(out.Bytes(), []byte("shared.example")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// clientHello returns what a client of crypto/tls says first.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	var sent bytes.Buffer
	c := tls.Client(&recorder{w: &sent}, &tls.Config{ServerName: name})
	if err := c.Handshake(); err == nil {
		t.Fatal("a handshake with nobody succeeds")
	}
	return sent.Bytes()
}

// recorder is a connection that hangs up on whoever says something.
type recorder struct {
	helloConn
	w io.Writer
}

func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *recorder) Write(b []byte) (int, error) { return r.w.Write(b) }

func FuzzHello(f *testing.F) {
	f.Add(clientHello(f, "web.example"))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, raw, err := readHello(bytes.NewReader(b))
		if !bytes.HasPrefix(b, raw) {
			t.Error("what was read is not what there is")
		}
		if err == nil && h.serverName != "" && !bytes.Contains(bytes.ToLower(b), []byte(h.serverName)) {
			// It may be split over records.
			if bytes.Count(b, []byte{recordHandshake, 3}) < 2 {
				t.Errorf("the name %q is not in the hello", h.serverName)
			}
		}
		_ = copyRecords(t.Context(), io.Discard, bytes.NewReader(b), h.serverName)
	})
}

func FuzzQuestion(f *testing.F) {
	name := dnsmessage.MustNewName("web.example.")
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeTXT} {
		m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: name, Type: kind, Class: dnsmessage.ClassINET}}}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	g, err := New(Options{
		Network: "web.example",
		resolve: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host != "web.example." {
				panic("upstream is asked for " + host)
			}
			return []netip.Addr{webAddr, web6Addr, privateAddr}, nil
		},
		machine: func() *machine { return &machine{known: true} },
	})
	if err != nil {
		f.Fatal(err)
	}
	defer g.Close()
	f.Fuzz(func(t *testing.T, b []byte) {
		reply := g.respond(t.Context(), b)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil || !m.Response || len(m.Questions) != 1 || len(reply) > 512 {
			t.Errorf("the answer to %x is %x: %v", b, reply, err)
		}
		for _, a := range m.Answers {
			if r, ok := a.Body.(*dnsmessage.AResource); ok && netip.AddrFrom4(r.A) == privateAddr {
				t.Error("an address that is not public is told")
			}
		}
	})
}

// FuzzFrames has a sandbox send any frame; the gateway opens nothing but what
// is allowed, and goes on.
func FuzzFrames(f *testing.F) {
	f.Add(frame(header.IPv4ProtocolNumber, syn(Guest4.Addr(), webAddr, 1000, 80)))
	f.Add(frame(header.IPv4ProtocolNumber, packet4(Guest4.Addr(), webAddr, 17, []byte{0, 1, 0, 53, 0, 9, 0, 0, 'x'})))
	f.Add(frame(header.IPv6ProtocolNumber, bytes.Repeat([]byte{0x60}, 60)))
	f.Add(frame(header.ARPProtocolNumber, make([]byte, 28)))
	f.Add([]byte{})
	w := newWorld(f, sandbox.Network("104.16.0.9:80"), sandbox.NetworkTerms{})
	w.serve(80, func(net.Conn) {}, otherAddr)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > MTU {
			return
		}
		w.t = t
		w.send(b)
		for _, d := range w.dials() {
			if d != "tcp 104.16.0.9:80" && d != "udp 104.16.0.9:80" {
				t.Errorf("the gateway opened %s", d)
			}
		}
	})
}

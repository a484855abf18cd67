package network

import (
	"io"
	"net"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// BenchmarkConnection compares a connection through the stack, from a program's
// socket in another stack to a server of this machine, with one by the
// machine's own loopback: how long a new connection and one byte there and back
// take, and how much goes through.
func BenchmarkConnection(b *testing.B) {
	w := newWorld(b, "internet", sandbox.NetworkTerms{})
	w.serve(80, echo, webAddr)
	w.serve(81, func(c net.Conn) { _, _ = io.Copy(c, neverEnding{}) }, webAddr)
	ways := map[string]func(port uint16) (net.Conn, error){
		"loopback": func(port uint16) (net.Conn, error) {
			at := map[uint16]string{80: w.servers["tcp 93.184.216.34:80"], 81: w.servers["tcp 93.184.216.34:81"]}[port]
			return net.Dial("tcp", at)
		},
		"stack": func(port uint16) (net.Conn, error) { return w.connect(webAddr, port) },
	}
	for _, name := range []string{"loopback", "stack"} {
		dial := ways[name]
		b.Run("ConnectAndByte/"+name, func(b *testing.B) {
			for b.Loop() {
				c, err := dial(80)
				if err != nil {
					b.Fatal(err)
				}
				roundTrip(b, c)
				c.Close()
			}
		})
		b.Run("Byte/"+name, func(b *testing.B) {
			c, err := dial(80)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			for b.Loop() {
				roundTrip(b, c)
			}
		})
		b.Run("Download/"+name, func(b *testing.B) {
			c, err := dial(81)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			const part = 1 << 20
			b.SetBytes(part)
			for b.Loop() {
				if _, err := io.CopyN(io.Discard, c, part); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func roundTrip(b *testing.B, c net.Conn) {
	b.Helper()
	buf := []byte{'x'}
	if _, err := c.Write(buf); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		b.Fatal(err)
	}
}

package guest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// carried begins to carry packets, and returns the other side of the interface and a
// way to connect.
func carried(t *testing.T) (tun net.Conn, dial func() net.Conn) {
	t.Helper()
	// A socket with messages, because an interface has packets.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "packets")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { ends[i].Close() })
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &carrier{tun: ends[0]}
	go c.serve(l)
	go c.carryOut()
	return ends[1], func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		return conn
	}
}

func exchange(t *testing.T, to io.Writer, sent string, from io.Reader, want string) {
	t.Helper()
	if _, err := io.WriteString(to, sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("after %q was written: %q, %v; want %q", sent, got, err, want)
	}
}

// TestCarrier: packets go both ways, and the newest connection replaces the one before.
func TestCarrier(t *testing.T) {
	tun, dial := carried(t)
	for _, name := range []string{"first", "second"} {
		conn := dial()
		exchange(t, conn, "\x00\x00", conn, "\x00\x00")
		exchange(t, tun, "out "+name, conn, "\x00"+string(rune(len("out "+name)))+"out "+name)
		exchange(t, conn, "\x00\x02in", tun, "in")
		if name == "first" {
			next := dial()
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a connection that was replaced: %v, want its end", err)
			}
			next.Close()
		}
	}
}

// TestCarrierStrangers: a connection that does not begin as it must gets no packets,
// and a large packet arrives whole.
func TestCarrierStrangers(t *testing.T) {
	tun, dial := carried(t)
	bad := dial()
	if _, err := io.WriteString(bad, "\x00\x02in"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(bad); len(got) > 0 {
		t.Errorf("a stranger gets %q, %v", got, err)
	}
	conn := dial()
	exchange(t, conn, "\x00\x00", conn, "\x00\x00")
	large := string(bytes.Repeat([]byte("x"), 65000))
	exchange(t, tun, large, conn, "\xfd\xe8"+large)
}

func TestWithout(t *testing.T) {
	args := []string{"--self", leaveFlag, "--tunnel"}
	if got := without(args, leaveFlag); !slices.Equal(got, []string{"--self", "--tunnel"}) || args[1] != leaveFlag {
		t.Errorf("without %s: %q, of %q", leaveFlag, got, args)
	}
}

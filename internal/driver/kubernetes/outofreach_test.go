package kubernetes_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/pinned"
)

// TestDirectOutOfReach: who reaches the port of a guest, without the keys of the server,
// gets nothing from it. Programs of the sandbox reach neither the port nor the socket for
// orders, if the guest could leave the Pod's network.
func TestDirectOutOfReach(t *testing.T) {
	need(t)
	for _, h := range []drivertest.Harness{gvisorDirect, runcDirect} {
		t.Run(h.Name, func(t *testing.T) {
			d, err := h.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			closeLater(t, d)
			b := drivertest.Launch(t, d, h.Spec())
			pods := list(t, "glovebox.sandbox="+b.Ref())
			if len(pods) != 1 {
				t.Fatalf("%d Pods", len(pods))
			}
			at := net.JoinHostPort(pods[0].Status.PodIP, fmt.Sprint(direct.Port))
			stranger, err := pinned.New("glovebox")
			if err != nil {
				t.Fatal(err)
			}
			for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "an unknown certificate": {stranger}} {
				plain, err := net.Dial("tcp", at)
				if err != nil {
					t.Fatalf("the node does not reach the guest: %v", err)
				}
				defer plain.Close()
				_ = plain.SetDeadline(time.Now().Add(time.Minute))
				conn := tls.Client(plain, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: certificates}) //nolint:gosec // an attacker does not verify
				if err := conn.Handshake(); err != nil {
					t.Fatalf("with %s: %v", name, err)
				}
				if n, err := io.ReadFull(conn, make([]byte, 1)); n > 0 || err == nil || !strings.Contains(err.Error(), "certificate") {
					t.Errorf("with %s the guest answers %d bytes, %v", name, n, err)
				}
			}

			left := h.Name == gvisorDirect.Name
			script := `import socket, sys
def reach(family, at):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(5)
    try:
        s.connect(at)
        return "reached"
    except OSError:
        return "not"
def read(path):
    try:
        return "read" if open(path, "rb").read(1) else "not"
    except OSError:
        return "not"
print(reach(socket.AF_INET, (sys.argv[1], int(sys.argv[2]))), reach(socket.AF_UNIX, "\0/run/glovebox/guest.sock"), read("/proc/1/environ"), read("/proc/1/mem"))
`
			want := "not not not not\n"
			if !left {
				want = "reached reached not not\n"
			}
			if got := b.MustRun(t, drivertest.Cmd{Argv: []string{h.Python, "-c", script, pods[0].Status.PodIP, fmt.Sprint(direct.Port)}}); got.Stdout != want {
				t.Errorf("a program: %v, want %q", got, want)
			}
			b.Answers(t, "after the attacks")
		})
	}
}

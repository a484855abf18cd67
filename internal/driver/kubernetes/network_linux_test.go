package kubernetes

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// webServer serves "hello" at an address of this machine that a box does not have.
func webServer(t *testing.T) *net.TCPAddr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(n.IP.String(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		})}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
		return l.Addr().(*net.TCPAddr)
	}
	t.Skip("this machine has no address but its loopback")
	return nil
}

// withNetwork returns a driver whose boxes can have a network.
func (f *fakeCluster) withNetwork(t *testing.T, change func(*Options)) *Driver {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return f.open(t, func(o *Options) {
		o.Network = program
		change(o)
	})
}

// linked returns a spec for a box that may reach one server.
func linked(server *net.TCPAddr) *driver.Spec {
	spec := unisolated(true)
	spec.Network = sandbox.Network(server.String())
	spec.NetworkTerms = sandbox.NetworkTerms{Reachable: sandbox.Network(server.IP.String())}
	return spec
}

// get returns what the box gets from the server, or "".
func get(t *testing.T, b *drivertest.Box, server *net.TCPAddr) string {
	t.Helper()
	return b.MustRun(t, drivertest.Cmd{Shell: fmt.Sprintf(
		`timeout 20 bash -c 'exec 3<>/dev/tcp/%s/%d; printf "GET / HTTP/1.0\r\n\r\n" >&3; tail -n 1 <&3' || true`, server.IP, server.Port,
	)}).Stdout
}

// needNetworkProcess skips a test in a program with cgo, such as one with the race
// detector: the process of a network confines all of its threads, which cgo prevents.
// make test-plain runs these tests without cgo.
func needNetworkProcess(t *testing.T) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("this program does not say how it was built")
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value == "1" {
			t.Skip("a program with cgo cannot be the process of a network")
		}
	}
}

// TestNetwork carries the packets of a box, also after its connections broke and after
// another driver took it over.
func TestNetwork(t *testing.T) {
	needNetworkProcess(t)
	server, other := webServer(t), webServer(t)
	for name, change := range transports {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			n := f.withNode(t)
			d := f.withNetwork(t, change)
			made, err := d.Create(t.Context(), linked(server))
			_, noTUN := os.Stat("/dev/net/tun")
			if sandbox.KindOf(err) == sandbox.Unsupported && sandbox.HintOf(err) != "" && (os.Geteuid() != 0 || noTUN != nil) {
				f.nothingLeft(t)
				t.Skip("this machine lets a guest have no network:", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := drivertest.NewBox(t, made)
			if got := get(t, b, server); got != "hello" {
				t.Fatalf("from the server that is allowed: %q", got)
			}
			if got := get(t, b, other); got != "" {
				t.Errorf("from a server that is not allowed: %q", got)
			}
			if got := b.MustRun(t, drivertest.Cmd{Shell: "grep -c 'CapEff:.*[1-9a-f]' /proc/self/status; cut -d: -f1 /proc/net/dev | tail -n +3 | xargs"}).Stdout; os.Geteuid() != 0 && got != "0\nlo eth0\n" {
				t.Errorf("capabilities and interfaces of a program: %q", got)
			}
			receipt, err := b.Receipt(t.Context())
			if c := receipt.Control(sandbox.ControlNetwork); err != nil || !c.Enforced || !strings.Contains(c.Value, "policy in force: "+server.String()) {
				t.Errorf("the receipt says of the network: %+v, %v", c, err)
			}
			n.cut() // the API server restarts
			cutDirect(t)
			for end := time.Now().Add(time.Minute); b.Client.Health(t.Context()) != nil; {
				if time.Now().After(end) {
					t.Fatal("the guest is not reached again")
				}
			}
			for end := time.Now().Add(time.Minute); get(t, b, server) != "hello"; {
				if time.Now().After(end) {
					t.Fatal("the network is not carried again")
				}
			}
			d.boxes.Release() // the server restarts
			again, err := d.Attach(t.Context(), b.Ref())
			if err != nil {
				t.Fatal(err)
			}
			b = drivertest.NewBox(t, again)
			if got := get(t, b, server); got != "hello" {
				t.Errorf("after another driver took it over: %q", got)
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			dir, err := d.state.NetworkDir(b.Ref())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory of the network is left: %v", err)
			}
			f.nothingLeft(t)
		})
	}
}

// TestNoNetwork: a node whose kernel does not let the guest make its interface.
func TestNoNetwork(t *testing.T) {
	f := newFakeCluster(t)
	f.withNode(t).change = func(args []string) []string {
		for i := range args {
			args[i] = strings.Replace(args[i], "65000", "70000", 1) // an MTU that no interface has
		}
		return args
	}
	d := f.withNetwork(t, transports["exec"])
	spec := unisolated(true)
	spec.Network = sandbox.NetworkInternet
	_, err := d.Create(t.Context(), spec)
	if sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" || !strings.Contains(err.Error(), "the runtime class gvisor cannot give a sandbox a network: the guest cannot make its interface: ") {
		t.Errorf("Create: %v (kind %s, hint %q)", err, sandbox.KindOf(err), sandbox.HintOf(err))
	}
	f.nothingLeft(t)
	spec = unisolated(true)
	spec.Network = sandbox.NetworkInternet
	d = f.open(t, func(o *Options) { o.Network, o.RuntimeClass, o.AllowContainer = "/program", "", true })
	if _, err := d.Create(t.Context(), spec); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" || d.Info().Features.Network {
		t.Errorf("Create without a runtime class: %v (hint %q)", err, sandbox.HintOf(err))
	}
}

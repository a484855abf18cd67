package drivertest

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An outside is a set of servers that boxes with a network can try to reach. The
// web server is at an address of this machine, which the operator allows. The
// DNS server resolves the web server's names.
type outside struct {
	addr     netip.Addr
	port     int
	resolver string
	// The same web server over HTTPS, with an untrusted certificate.
	securePort     int
	secureRequests atomic.Int64
}

// The names that the outside's DNS server resolves. privateName resolves to an
// address that is not public.
const (
	allowedName = "allowed.example"
	deniedName  = "denied.example"
	privateName = "private.example"
)

// newOutside starts the servers. It skips the test if the machine has only
// loopback addresses.
func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			o.addr = netip.AddrFrom4([4]byte(n.IP.To4()))
			break
		}
	}
	if !o.addr.IsValid() {
		t.Skip("this machine has no address but its loopback, and a box has a loopback of its own")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(o.addr.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	o.port = l.Addr().(*net.TCPAddr).Port
	srv := &http.Server{ReadHeaderTimeout: stepTime, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if n == 0 {
			fmt.Fprintf(w, "hello %s", r.Host)
			return
		}
		_, _ = io.CopyN(w, zeroes{}, int64(n))
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { o.secureRequests.Add(1) }))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.Listener.Close()
	if secure.Listener, err = net.Listen("tcp", net.JoinHostPort(o.addr.String(), "0")); err != nil {
		t.Fatal(err)
	}
	o.securePort = secure.Listener.Addr().(*net.TCPAddr).Port
	secure.StartTLS()
	t.Cleanup(secure.Close)
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.resolver = dns.LocalAddr().String()
	go o.serveDNS(dns)
	t.Cleanup(func() { dns.Close() })
	return o
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// serveDNS answers queries for IPv4 addresses.
func (o *outside) serveDNS(conn net.PacketConn) {
	known := map[string]netip.Addr{
		allowedName: o.addr, deniedName: o.addr, privateName: netip.MustParseAddr("10.99.98.97"),
	}
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		const header = 12
		end := header
		var labels []string
		for end < n && buf[end] != 0 && end+1+int(buf[end]) < n {
			labels = append(labels, strings.ToLower(string(buf[end+1:end+1+int(buf[end])])))
			end += 1 + int(buf[end])
		}
		end += 5 // the root label, the type, the class
		if end > n {
			continue
		}
		addr, ok := known[strings.Join(labels, ".")]
		out := slices.Concat(buf[:2], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, buf[header:end])
		switch {
		case !ok:
			out[3] |= 3 // no such name
		case binary.BigEndian.Uint16(buf[end-4:]) == 1:
			out[7] = 1
			out = append(out, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4)
			out = append(out, addr.AsSlice()...)
		}
		_, _ = conn.WriteTo(out, from)
	}
}

// at returns a policy of the given rules and the web server's address and port.
func (o *outside) at(rules ...string) sandbox.Network {
	rules = append(rules, o.addr.String()+":"+strconv.Itoa(o.port))
	return sandbox.Network(strings.Join(rules, ","))
}

// spec returns a spec for a box with the given policy. Its terms allow the
// server's address on any port, if the policy names it.
func (o *outside) spec(s *suite, n sandbox.Network) *driver.Spec {
	spec := s.h.Spec()
	spec.Network = n
	spec.NetworkTerms = sandbox.NetworkTerms{
		Reachable: sandbox.Network(o.addr.String()),
		Resolver:  o.resolver,
	}
	return spec
}

// fetch is a program that prints the size of each URL's content, or the error.
const fetch = `
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(len(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20).read()))
    except Exception as e:
        print("failed:", e)
`

// fetches runs fetch in the box and returns its line for each URL. PORT in a URL
// stands for the web server's port.
func (o *outside) fetches(t testing.TB, s *suite, b *Box, urls ...string) []string {
	t.Helper()
	args := make([]string, len(urls))
	for i, u := range urls {
		args[i] = strings.ReplaceAll(u, "PORT", strconv.Itoa(o.port))
	}
	r := b.MustRun(t, Python(s.h.Python, fetch, args...))
	return strings.Split(strings.TrimSpace(r.Stdout), "\n")
}

func testNetwork(t *testing.T, s *suite) {
	if !s.open(t).Info().Features.Network {
		t.Skip("the driver declares no network")
	}
	s.python(t)
	t.Run("Allow", func(t *testing.T) { networkAllow(t, s) })
	t.Run("Private", func(t *testing.T) { networkPrivate(t, s) })
	t.Run("Secrets", func(t *testing.T) { networkSecrets(t, s) })
	t.Run("Change", func(t *testing.T) { networkChange(t, s) })
	t.Run("Survive", func(t *testing.T) { networkSurvives(t, s) })
	t.Run("Crash", func(t *testing.T) { networkCrashes(t, s) })
}

func networkAllow(t *testing.T, s *suite) {
	o := newOutside(t)
	st := s.open(t)
	b := st.boxOf(t, o.spec(s, o.at("private.example", allowedName+":"+strconv.Itoa(o.port))))
	urls := []string{
		"http://allowed.example:PORT/", "http://allowed.example:PORT/3000000", // more than a datagram holds
		"http://denied.example:PORT/", "http://private.example/", "http://169.254.169.254/", "http://[fd00:ec2::254]/",
		"http://" + o.addr.String() + ":22/", "http://allowed.example:22/",
	}
	got := o.fetches(t, s, b, urls...)
	if len(got) != len(urls) {
		t.Fatalf("%d results of %d: %q", len(got), len(urls), got)
	}
	for i, u := range urls {
		failed := strings.HasPrefix(got[i], "failed")
		if failed != (i >= 2) {
			t.Errorf("%s: %s", u, got[i])
		}
	}
	if got[1] != "3000000" {
		t.Errorf("3,000,000 bytes came as %s", got[1])
	}
	tr, ok, err := driver.ReadTraffic(step(t), b.Box, 0)
	if err != nil || !ok {
		t.Fatalf("ReadTraffic: %v, %v", ok, err)
	}
	for _, want := range []sandbox.Destination{
		{Host: allowedName, Port: uint16(o.port)},
		{Host: deniedName, Blocked: sandbox.BlockedPolicy},
		{Host: privateName, Blocked: sandbox.BlockedPrivate},
		{Host: "169.254.169.254", Port: 80, Blocked: sandbox.BlockedPrivate},
		{Host: "fd00:ec2::254", Port: 80, Blocked: sandbox.BlockedPrivate},
		{Host: allowedName, Port: 22, Blocked: sandbox.BlockedPolicy},
	} {
		i := slices.IndexFunc(tr.Destinations, func(d sandbox.Destination) bool {
			return d.Host == want.Host && d.Port == want.Port && d.Blocked == want.Blocked
		})
		if i < 0 {
			t.Errorf("the record lacks %+v: %+v", want, tr.Destinations)
		} else if d := tr.Destinations[i]; d.Blocked == "" && (d.Received < 3000000 || d.Connections != 2) {
			t.Errorf("the record has %+v, want two connections and all bytes", d)
		}
	}
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatal(err)
	}
	if c := receipt.Control(sandbox.ControlNetwork); !c.Enforced || !strings.Contains(c.Value, allowedName) {
		t.Errorf("the receipt says of the network: %+v", c)
	}
}

// networkPrivate connects to a private address that the operator allows.
// Policies that do not name both the address and the port must not allow it.
func networkPrivate(t *testing.T, s *suite) {
	o := newOutside(t)
	st := s.open(t)
	other := o.addr.String() + ":" + strconv.Itoa(o.securePort) // a server listens there too
	byName, byAddress := "http://"+allowedName+":PORT/", "http://"+o.addr.String()+":PORT/"
	b := st.boxOf(t, o.spec(s, o.at(allowedName)))
	for _, c := range []struct {
		policy sandbox.Network
		want   []bool // for each URL, whether it is reached
	}{
		{o.at(allowedName), []bool{true, true}},
		{allowedName, []bool{false, false}}, // though the box knows the name's address
		{sandbox.NetworkInternet, []bool{false, false}},
		{sandbox.Network(allowedName + "," + other), []bool{false, false}},
		{sandbox.Network("internet," + other), []bool{false, false}},
		{o.at(), []bool{false, true}},
		{sandbox.Network("internet," + o.addr.String()), []bool{true, true}},
		// A range that is allowed wins over a denied one.
		{sandbox.Network("internet,!" + o.addr.String()), []bool{false, false}},
		{o.at(allowedName) + ",!0.0.0.0/0", []bool{true, true}},
	} {
		if err := driver.SetNetwork(step(t), b.Box, c.policy, nil); err != nil {
			t.Fatal(err)
		}
		for i, got := range o.fetches(t, s, b, byName, byAddress) {
			if reached := !strings.HasPrefix(got, "failed"); reached != c.want[i] {
				t.Errorf("%s: %s: %s", c.policy, []string{byName, byAddress}[i], got)
			}
		}
	}
}

// networkSecrets has a secret for a host whose certificate is not trusted. The
// box's network must verify the server, send it nothing, and report the failure
// to the box. The tests of package network cover the other cases.
func networkSecrets(t *testing.T, s *suite) {
	o := newOutside(t)
	st := s.open(t)
	spec := o.spec(s, sandbox.Network(allowedName+","+o.addr.String()))
	const value = "correct-horse-battery-staple"
	port := strconv.Itoa(o.securePort)
	spec.Secrets = []sandbox.Secret{{Name: "API_KEY", Hosts: sandbox.Network(allowedName + ":" + port), Value: sandbox.NewSecretValue(value)}}
	b := st.boxOf(t, spec)
	authority, err := driver.ReadAuthority(step(t), b.Box)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(authority)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		t.Fatalf("the authority is %q", authority)
	}
	c := Python(s.h.Python, `
import ssl, sys, urllib.request, urllib.error
trust = ssl.create_default_context(cadata=sys.argv[2])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
try:
    print(opener.open(urllib.request.Request(sys.argv[1], headers={"Authorization": sys.argv[3]}), timeout=20).read())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
`, "https://"+allowedName+":"+port+"/", string(authority), spec.Secrets[0].Placeholder())
	if r := b.MustRun(t, c); !strings.HasPrefix(r.Stdout, "502 glovebox: the server's certificate") {
		t.Errorf("a server with an unknown certificate: %v", r)
	}
	if n := o.secureRequests.Load(); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
	if s.h.Processes == nil {
		return
	}
	// The driver's files and processes do not contain the value.
	err = filepath.WalkDir(st.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(value)) {
			t.Errorf("%s has the secret", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, pid := range s.h.Processes(t, st.dir, b.Ref()) {
		for _, file := range []string{"cmdline", "environ"} {
			if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file)); err == nil && bytes.Contains(text, []byte(value)) {
				t.Errorf("%s of process %d has the secret", file, pid)
			}
		}
	}
	none := st.boxOf(t, o.spec(s, allowedName))
	if authority, err := driver.ReadAuthority(step(t), none.Box); err != nil || authority != nil {
		t.Errorf("a box without secrets has an authority: %q, %v", authority, err)
	}
}

func networkChange(t *testing.T, s *suite) {
	o := newOutside(t)
	st := s.open(t)
	b := st.boxOf(t, o.spec(s, o.at(allowedName, deniedName)))
	if got := o.fetches(t, s, b, "http://denied.example:PORT/"); strings.HasPrefix(got[0], "failed") {
		t.Fatalf("before the change: %s", got)
	}
	if err := driver.SetNetwork(step(t), b.Box, o.at(allowedName), nil); err != nil {
		t.Fatal(err)
	}
	got := o.fetches(t, s, b, "http://denied.example:PORT/", "http://allowed.example:PORT/")
	if !strings.HasPrefix(got[0], "failed") || strings.HasPrefix(got[1], "failed") {
		t.Errorf("after the change: %q", got)
	}
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatal(err)
	}
	if c := receipt.Control(sandbox.ControlNetwork); c.Asked != string(o.at(allowedName)) || !c.Enforced {
		t.Errorf("the receipt says of the network: %+v", c)
	}
	denying := o.at(allowedName) + ",!192.0.2.0/24"
	if err := driver.SetNetwork(step(t), b.Box, denying, nil); err != nil {
		t.Fatal(err)
	}
	if receipt, err = b.Receipt(step(t)); err != nil {
		t.Fatal(err)
	}
	if c := receipt.Control(sandbox.ControlNetwork); c.Asked != string(denying) || !c.Enforced {
		t.Errorf("the receipt says of a network with a denied range: %+v", c)
	}
	if err := driver.SetNetwork(step(t), b.Box, "everything", nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a policy that is none: %v", err)
	}
	none := st.box(t)
	if err := driver.SetNetwork(step(t), none.Box, allowedName, nil); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("a network for a box that was made without: %v", err)
	}
}

// networkSurvives checks that a detached box still has its network after its
// creator has ended.
func networkSurvives(t *testing.T, s *suite) {
	o := newOutside(t)
	st := s.open(t)
	if !st.Info().Features.Detach {
		t.Skip("the driver has no detached boxes")
	}
	d, err := s.h.Open(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := o.spec(s, o.at(allowedName))
	spec.Detached = true
	b, err := d.Create(step(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := st.Attach(step(t), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	box := NewBox(t, a)
	if got := o.fetches(t, s, box, "http://allowed.example:PORT/", "http://denied.example:PORT/"); strings.HasPrefix(got[0], "failed") || !strings.HasPrefix(got[1], "failed") {
		t.Errorf("after the creator's Close: %q", got)
	}
	if tr, _, err := driver.ReadTraffic(step(t), a, 0); err != nil || len(tr.Destinations) != 2 {
		t.Errorf("the traffic: %+v, %v", tr, err)
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Error(err)
	}
}

// networkCrashes kills the process of a box's network. The box must keep
// running, without any connection.
func networkCrashes(t *testing.T, s *suite) {
	if s.h.Processes == nil {
		t.Skip("the box's processes are on another machine")
	}
	o := newOutside(t)
	st := s.open(t)
	b := st.boxOf(t, o.spec(s, o.at(allowedName)))
	other := st.boxOf(t, o.spec(s, o.at(allowedName)))
	killed := false
	for _, pid := range s.h.Processes(t, st.dir, b.Ref()) {
		args, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if strings.HasPrefix(string(args), "glovebox-network\x00") {
			p, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
	}
	if !killed {
		t.Skip("the network is carried by no process of its own")
	}
	// Connections get no answer, so the program sets a timeout.
	c := Python(s.h.Python, "import socket; socket.setdefaulttimeout(2)\ntry: socket.create_connection(('"+o.addr.String()+"', "+strconv.Itoa(o.port)+"))\nexcept OSError: print('failed')")
	c.Timeout = 30 * time.Second
	if r := b.MustRun(t, c); r.Stdout != "failed\n" {
		t.Errorf("without its network's process the box reaches something: %v", r)
	}
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatal(err)
	}
	if c := receipt.Control(sandbox.ControlNetwork); !strings.Contains(c.Value, "nothing is reached") {
		t.Errorf("the receipt says of the network: %+v", c)
	}
	if got := o.fetches(t, s, other, "http://allowed.example:PORT/"); strings.HasPrefix(got[0], "failed") {
		t.Errorf("another box: %q", got)
	}
}

//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// An apiServer is the host that a secret is for, on an address of this machine
// that a DNS server of its own knows.
type apiServer struct {
	addr     netip.Addr
	port     string
	resolver string
	roots    string       // path of the certificate that vouches for it
	git      http.Handler // of paths below /git/, or nil

	mu   sync.Mutex
	seen map[string]string // the key that each program sent
	// authorized are the Authorization headers of requests that had one, by path.
	authorized map[string]string
}

const apiName = "api.example"

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{seen: map[string]string{}, authorized: map[string]string{}, roots: filepath.Join(t.TempDir(), "roots.pem")}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			s.addr = netip.AddrFrom4([4]byte(n.IP.To4()))
		}
	}
	if !s.addr.IsValid() {
		t.Skip("this machine has no address but its loopback, and a box has a loopback of its own")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{apiName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.git != nil && strings.HasPrefix(r.URL.Path, "/git/") {
			s.git.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		name := strings.TrimPrefix(r.URL.Path, "/")
		s.seen[name] = r.Header.Get("X-Key")
		if v := r.Header.Get("Authorization"); v != "" {
			s.authorized[name] = v
		}
		s.mu.Unlock()
		fmt.Fprintln(w, "hello", r.URL.Path)
	}))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	web.EnableHTTP2 = true
	web.Listener.Close()
	if web.Listener, err = net.Listen("tcp", s.addr.String()+":0"); err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(web.Listener.Addr().String())
	web.StartTLS()
	t.Cleanup(web.Close)
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dns.Close() })
	s.resolver = dns.LocalAddr().String()
	go s.serveDNS(dns)
	return s
}

// serveDNS answers every question for an IPv4 address with the server's.
func (s *apiServer) serveDNS(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		const header, root, question, fixed = 12, 1, 4, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04"
		end := header + bytes.IndexByte(buf[header:n], 0) + root + question
		if end < header+root+question || end > n {
			continue
		}
		out := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, buf[header:end]...)
		if buf[end-question+1] == 1 { // for an IPv4 address
			out[7] = 1
			out = append(append(out, fixed...), s.addr.AsSlice()...)
		}
		_, _ = conn.WriteTo(out, from)
	}
}

// TestGvisorSecret has usual programs, and whoever starts them without their
// environment, use a secret that they do not have.
func TestGvisorSecret(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	s := newAPIServer(t)
	const key = "correct-horse-battery-staple"
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("network:\n  resolver: %q\n  allow: [%q, %q]\n", s.resolver, apiName+":"+s.port, s.addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	programs := map[string]string{
		"python": `python3 -c 'import os, urllib.request as u; u.urlopen(u.Request(os.environ["URL"] + "python", headers={"X-Key": os.environ["API_KEY"]}))'`,
		"curl":   `curl -sSf -H "X-Key: $API_KEY" "${URL}curl" >&2`,
		"bare":   `env -i /usr/bin/curl -sSf -H "X-Key: $API_KEY" "${URL}bare" >&2`,
		"wget":   `wget -q -O- --header "X-Key: $API_KEY" "${URL}wget" >&2`,
		"node":   `node -e 'require("https").get(process.env.URL + "node", {headers: {"X-Key": process.env.API_KEY}}).on("error", e => { throw e })'`,
	}
	script := "echo \"$API_KEY\"\n"
	for name, line := range programs {
		command, _, _ := strings.Cut(strings.TrimPrefix(line, "env -i /usr/bin/"), " ")
		if _, err := os.Stat("/usr/bin/" + command); err != nil {
			delete(programs, name)
			continue
		}
		script += line + "\n"
	}
	cmd := exec.CommandContext(t.Context(), binary, "--driver", "gvisor", "--state-dir", state, "--config", config, "--log-level", "debug",
		"--secret", "API_KEY=@"+file, "--secret-host", apiName+":"+s.port,
		"run", "--timeout", "2m", "--network", apiName+":"+s.port+","+s.addr.String()+":"+s.port, "-e", "URL=https://"+apiName+":"+s.port+"/", "-l", "bash", "-c", script)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+s.roots)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("glovebox run: %v\n%s", err, &stderr)
	}
	if got := string(out); got != "glovebox-secret-API_KEY-placeholder\n" {
		t.Errorf("the sandbox has %q", got)
	}
	if strings.Contains(stderr.String(), key) {
		t.Errorf("the log has the secret: %s", &stderr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range programs {
		if s.seen[name] != key {
			t.Errorf("the server saw of %s the key %q", name, s.seen[name])
		}
	}
	searchFor(t, state, key)
}

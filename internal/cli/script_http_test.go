//go:build linux

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptHeaders are the headers that the command header sets, each kept in a
// variable of the script.
var scriptHeaders = []string{"Host", "Origin", "Mcp-Session-Id"}

// cmdHeader sets a header of the requests that follow, or with "" takes it
// back: header NAME VALUE
func cmdHeader(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: header name value")
	}
	ts.Setenv("HEADER_"+args[0], args[1])
}

// newRequest makes a request as the script's commands send it. A message of
// MCP from 2026-07-28 on is repeated in headers.
func newRequest(ts *testscript.TestScript, method, url, token, body string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, name := range scriptHeaders {
		if v := ts.Getenv("HEADER_" + name); v != "" {
			req.Header.Set(name, v)
			if name == "Host" {
				req.Host = v
			}
		}
	}
	var m struct {
		Method string
		Params struct {
			Name string
			Meta map[string]any `json:"_meta"`
		}
	}
	if json.Unmarshal([]byte(body), &m) == nil {
		if v, ok := m.Params.Meta["io.modelcontextprotocol/protocolVersion"].(string); ok {
			req.Header.Set("Mcp-Protocol-Version", v)
			req.Header.Set("Mcp-Method", m.Method)
			if m.Params.Name != "" {
				req.Header.Set("Mcp-Name", m.Params.Name)
			}
		}
	}
	return req
}

// scriptClient trusts the script's own certificate, if it made one.
func scriptClient(ts *testscript.TestScript) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	if text, err := os.ReadFile(ts.MkAbs("cert.pem")); err == nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Timeout: scriptPatience, Transport: transport}
}

// cmdHTTP makes a request, again until somebody answers, and writes status and
// body to standard output, and a session of MCP that it opened to $SESSION: http
// METHOD URL TOKEN [body-file]
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: http method url token [body-file]")
	}
	body := ""
	if len(args) == 4 {
		body = ts.ReadFile(args[3])
	}
	client := scriptClient(ts)
	for deadline := time.Now().Add(scriptPatience); ; time.Sleep(20 * time.Millisecond) {
		res, err := client.Do(newRequest(ts, args[0], args[1], args[2], body))
		if err != nil {
			if time.Now().After(deadline) {
				ts.Fatalf("%v", err)
			}
			continue
		}
		text, err := io.ReadAll(res.Body)
		ts.Check(err)
		ts.Check(res.Body.Close())
		fmt.Fprintf(ts.Stdout(), "%d\n%s\n", res.StatusCode, text)
		ts.Setenv("SESSION", res.Header.Get("Mcp-Session-Id"))
		return
	}
}

// cmdFlood posts a body, or one of 100 kB if it is "large", until the answer
// has a status: flood URL TOKEN STATUS body-file|large
func cmdFlood(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: flood url token status body-file")
	}
	want, err := strconv.Atoi(args[2])
	ts.Check(err)
	body := `{"x":"` + strings.Repeat("x", 100_000) + `"}`
	if args[3] != "large" {
		body = ts.ReadFile(args[3])
	}
	client := scriptClient(ts)
	for range 100 {
		res, err := client.Do(newRequest(ts, http.MethodPost, args[0], args[1], body))
		ts.Check(err)
		ts.Check(res.Body.Close())
		if res.StatusCode != want {
			continue
		}
		if want == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
			ts.Fatalf("status %d without Retry-After", want)
		}
		return
	}
	ts.Fatalf("no status %d in 100 requests", want)
}

// cmdCertificate makes a certificate for 127.0.0.1: certificate CERT KEY
func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certificate cert-file key-file")
	}
	ts.Check(writeCertificate(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// writeCertificate makes a certificate for 127.0.0.1 and these hosts.
func writeCertificate(certFile, keyFile string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: hosts,
		IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

//go:build !nogvisor

package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// wakePause is how long the benchmark leaves a sandbox alone before each request, so
// that it rests: it does after a second.
const wakePause = 1200 * time.Millisecond

// serveForBench is a service that answers on port 8000.
const serveForBench = `import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), H).serve_forever()
`

// BenchmarkWakeByRequest is the time in which a request to a service finds a
// connection and an answer: in a sandbox that rests, and in the same one while it is
// awake. The difference is the price of waking.
func BenchmarkWakeByRequest(b *testing.B) {
	sys := benchSystem(b)
	run, err := sys.Engine.Start(b.Context(), sandbox.Local, sandbox.RunRequest{
		Code: serveForBench, Language: "python",
		Service: &sandbox.ServiceRequest{Wake: sandbox.WakeRequest, Ready: &sandbox.ReadyCheck{Port: 8000}},
	})
	if err == nil {
		run, err = sys.Engine.WaitReady(b.Context(), sandbox.Local, run.ID)
	}
	if err != nil || run.Service.State != sandbox.ServiceRunning {
		b.Fatalf("%+v, %v", run, err)
	}
	ask := func() (connected, answered time.Duration) {
		began := time.Now()
		conn, err := sys.Engine.DialPort(b.Context(), sandbox.Local, run.SandboxID, 8000)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		connected = time.Since(began)
		if err := get(conn); err != nil {
			b.Fatal(err)
		}
		return connected, time.Since(began)
	}
	var connected, answered, awake series
	for b.Loop() {
		time.Sleep(wakePause)
		c, a := ask()
		connected, answered = append(connected, c), append(answered, a)
		_, a = ask()
		awake = append(awake, a)
	}
	b.ReportMetric(0, "ns/op")
	for name, s := range map[string]series{"connected": connected, "answered": answered, "answered-awake": awake} {
		b.ReportMetric(s.at(0.50), name+"-p50-ms")
		b.ReportMetric(s.at(0.95), name+"-p95-ms")
	}
}

// get sends a request on conn, and reads the answer.
func get(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ok" {
		return fmt.Errorf("%q, %w", body, err)
	}
	return nil
}

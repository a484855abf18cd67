//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A kept is a collector of OpenTelemetry that keeps what it gets.
type kept struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (k *kept) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintln(&k.text, r.URL, r.Header)
	_, _ = k.text.ReadFrom(r.Body)
	fmt.Fprintln(w, "{}")
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

// TestGvisorSecretInRecords has a program use a secret, and print some text. The secret is
// nowhere in what the server wrote and sent: the audit log, metrics, traces, the log, the
// history, and all files of its state. The output is in none of those records, and the code
// in the history only.
func TestGvisorSecretInRecords(t *testing.T) {
	api := newAPIServer(t)
	collector := &kept{}
	web := httptest.NewServer(collector)
	defer web.Close()
	// The texts are long enough to be in nothing by accident.
	const secret, code, output = "Kq7vT3mZx9LpR2wHc5Yd", "variable_of_the_code_Jf8s", "4871236509914"
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	host := apiName + ":" + api.port
	for name, value := range map[string]string{
		"SSL_CERT_FILE": api.roots, "OTEL_EXPORTER_OTLP_ENDPOINT": web.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
		"OTEL_METRIC_EXPORT_INTERVAL": "1000",
	} {
		t.Setenv(name, value)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GLOVEBOX_METRICS_LISTEN", "127.0.0.1:"+port)
	s := startSoak(t, 0, fmt.Sprintf("pool: {size: 0}\naudit: {enabled: true}\nlog_level: debug\nsecrets:\n  - {name: API_KEY, file: %s, hosts: [%q]}\n"+
		"network: {resolver: %q, allow: [%q, %q]}\n", file, host, api.resolver, host, api.addr), "alice")
	r, err := s.toolAs(t.Context(), "alice", "create_sandbox", map[string]any{"network": fmt.Sprintf("%s,%s:%s", host, api.addr, api.port)})
	if err != nil || r.SandboxID == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	s.ids[r.SandboxID] = true
	program := fmt.Sprintf("import os, urllib.request as u\n%s = 1\nkey = os.environ['API_KEY']\nu.urlopen(u.Request('https://%s/used', headers={'X-Key': key}))\n"+
		"print(%s * 1, end='')\n", code, host, "4871236509913 + 1")
	r, err = s.toolAs(t.Context(), "alice", "run_code", map[string]any{"sandbox_id": r.SandboxID, "code": program})
	if err != nil || r.Verdict.Code != "ok" || !strings.Contains(r.Stdout, output) {
		t.Fatalf("%+v, %v", r, err)
	}
	api.mu.Lock()
	if got := api.seen["used"]; got != secret {
		t.Errorf("the host saw the key %q", got)
	}
	api.mu.Unlock()

	records := map[string]string{}
	for name, args := range map[string][]string{
		"history": {"runs", "--json"}, "sandboxes": {"ps", "--json"}, "usage": {"usage", "--json"},
	} {
		out, err := exec.CommandContext(t.Context(), s.binary, append(args, "--config", s.config)...).CombinedOutput()
		if err != nil {
			t.Errorf("glovebox %s: %v\n%s", args, err, out)
		}
		records[name] = string(out)
	}
	records["metrics"] = scrapeMetrics(t, s, "http://127.0.0.1:"+port+"/metrics")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(collector.String(), "resourceSpans"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the collector gets no traces")
		}
	}
	s.end()
	records["collector"], records["log"] = collector.String(), s.log.String()
	audits, err := filepath.Glob(filepath.Join(s.dir, "audit", "*"))
	if err != nil || len(audits) == 0 {
		t.Fatalf("there is no audit log: %v", err)
	}
	for _, name := range audits {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		records["audit"] += string(text)
	}
	for name, text := range records {
		if len(text) < 100 {
			t.Errorf("%s has only %q", name, text)
		}
		for _, form := range forms(secret) {
			if strings.Contains(text, form) {
				t.Errorf("%s has the secret as %q", name, form)
			}
		}
		for _, hidden := range []string{code, output} {
			// The history shows its owner the beginning of each program, and no output.
			if strings.Contains(text, hidden) && (name != "history" || hidden != code) {
				t.Errorf("%s has %q", name, hidden)
			}
		}
	}
	for _, form := range forms(secret) {
		searchFor(t, s.dir, form)
	}
}

// forms returns the spellings in which a value might be written. The encoding of a value
// in base64 depends on its place in a longer text.
func forms(value string) []string {
	quoted, _ := json.Marshal(value)
	all := []string{value, strings.Trim(string(quoted), `"`), hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value)))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + value))
		all = append(all, text[4:len(text)-4])
	}
	return all
}

// scrapeMetrics returns the metrics in both formats.
func scrapeMetrics(t *testing.T, s *soak, url string) (all string) {
	t.Helper()
	token, err := exec.CommandContext(t.Context(), s.binary, "token", "create", "prometheus", "--role", "operator", "--config", s.config).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"text/plain", "application/openmetrics-text"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("metrics: %s, %v\n%s", res.Status, err, text)
		}
		all += string(text)
	}
	return all
}

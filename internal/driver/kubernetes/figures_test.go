package kubernetes_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// TestFigures compares the driver with kubectl, and its transports with each other, in
// turn, on the same node and runtime class: print(1) in a new Pod, a command in a running
// Pod, and a large file. No figure decides whether the test passes. It takes a while, so it
// needs GLOVEBOX_FIGURES.
func TestFigures(t *testing.T) {
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	need(t)
	h := gvisorHarness
	drivers := map[string]driver.Driver{}
	for name, h := range map[string]drivertest.Harness{"exec": gvisorHarness, "direct": gvisorDirect} {
		d, err := h.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, d)
		drivers[name] = d
	}
	t.Run("pods", func(t *testing.T) {
		m := newMeter(t)
		for i := range 10 {
			m.measure("a new Pod by kubectl run", func() {
				out := kubectl(t, "run", fmt.Sprintf("figure-%d", i), "--namespace", "default", "--image", os.Getenv(imageEnv), "--image-pull-policy", "Never",
					"--restart", "Never", "--rm", "--stdin", "--quiet", "--overrides", `{"spec":{"runtimeClassName":"gvisor"}}`,
					// kubectl may miss output that comes before it is attached.
					"--command", "--", "sh", "-c", "read -r line; exec "+h.Python+" -c 'print(1)'")
				if !strings.Contains(out, "1\n") {
					t.Errorf("kubectl run prints %q", out)
				}
			})
			for name, d := range drivers {
				m.measure("a new Pod by the driver, "+name, func() {
					b, err := d.Create(t.Context(), h.Spec())
					if err != nil {
						t.Fatal(err)
					}
					if r := drivertest.NewBox(t, b).MustRun(t, drivertest.Python(h.Python, "print(1)")); r.Stdout != "1\n" {
						t.Error(r)
					}
					// As with --rm, the Pod's end counts.
					if err := b.Destroy(t.Context()); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	})
	boxes := map[string]*drivertest.Box{"exec": drivertest.Launch(t, drivers["exec"], h.Spec())}
	pod := strings.Fields(kubectl(t, "get", "pods", "--output", "name"))
	if len(pod) != 1 {
		t.Fatalf("Pods: %q", pod)
	}
	boxes["direct"] = drivertest.Launch(t, drivers["direct"], h.Spec())
	t.Run("calls", func(t *testing.T) {
		m := newMeter(t)
		for _, b := range boxes {
			b.MustRun(t, drivertest.Cmd{Argv: []string{"/bin/true"}})
			b.Execute(t, &execute, nil)
		}
		for range 50 {
			m.measure("/bin/true by kubectl exec", func() { kubectl(t, "exec", pod[0], "--", "/bin/true") })
			for name, b := range boxes {
				m.measure("/bin/true by the driver, "+name, func() { b.MustRun(t, drivertest.Cmd{Argv: []string{"/bin/true"}}) })
				m.measure("print(1) in a context, "+name, func() { b.Execute(t, &execute, nil) })
			}
		}
	})
	t.Run("files", func(t *testing.T) {
		m := newMeter(t)
		for range 5 {
			for name, b := range boxes {
				before := nodeCPU(t)
				m.measure("a file of 128 MiB in, "+name, func() {
					if _, err := b.Client.Write(t.Context(), largeFile, io.LimitReader(zeros{}, fileSize), guestapi.WriteOptions{}); err != nil {
						t.Fatal(err)
					}
				})
				m.measure("a file of 128 MiB out, "+name, func() {
					r, _, err := b.Client.Read(t.Context(), largeFile, 0, fileSize, guestapi.FileOptions{})
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					if n, err := io.Copy(io.Discard, r); err != nil || n != fileSize {
						t.Fatal(n, err)
					}
				})
				m["CPU time of the node's programs for both, "+name] = append(m["CPU time of the node's programs for both, "+name], nodeCPU(t)-before)
				if err := b.Client.Remove(t.Context(), largeFile, guestapi.FileOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A meter measures calls by name, and logs the times at the end of its test.
type meter map[string][]time.Duration

func newMeter(t *testing.T) meter {
	m := meter{}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			s := m[name]
			slices.Sort(s)
			t.Logf("%-50s p50 %v, p95 %v", name, s[len(s)/2].Round(100*time.Microsecond), s[len(s)*95/100].Round(100*time.Microsecond))
		}
	})
	return m
}

func (m meter) measure(name string, f func()) {
	began := time.Now()
	f()
	m[name] = append(m[name], time.Since(began))
}

// nodeCPU returns the CPU time that the programs of the cluster have used.
func nodeCPU(t *testing.T) time.Duration {
	t.Helper()
	var all time.Duration
	for _, name := range []string{"kube-apiserver", "kubelet", "containerd"} {
		pid, err := os.ReadFile(filepath.Join(os.Getenv("GLOVEBOX_TEST_PIDS"), name))
		if err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range fields[11:13] { // in user and kernel mode, of 10 ms
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			all += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return all
}

// The large file, and its size in bytes.
const (
	largeFile = "/data/large"
	fileSize  = 128 << 20
)

// zeros are an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

var execute = guestapi.ExecuteRequest{ContextID: "figures", Create: true, Language: "python", Code: "print(1)"}

// kubectl returns the output of kubectl, which gets one empty line.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Stdin = strings.NewReader("\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %q: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

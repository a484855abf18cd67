//go:build linux && !nogvisor

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/usage"
)

// burn is a program that uses CPU time.
const burn = "import time\nwhile time.process_time() < 0.4: pass"

// TestGvisorMetering ends sandboxes in each way that there is. The sum over principals is
// the CPU time that the host kernel counted for all sandboxes, within 1 %.
func TestGvisorMetering(t *testing.T) {
	group := meteringGroup(t)
	names := []string{"stops", "times-out", "is-killed", "sleeps", "dies-asleep", "is-taken-over"}
	s := startSoak(t, 0, "pool: {size: 0}\nsandbox: {count: 12, hibernate: disk, default: {memory: 256MiB, disk: 32MiB}}\n", names...)
	s.kill()
	s.groups = group.dirs
	s.start()
	call := func(who, name string, args map[string]any) soakRun {
		t.Helper()
		r, err := s.toolAs(t.Context(), who, name, args)
		if err != nil || r.Message != "" {
			t.Fatalf("%s of %s: %v %s", name, who, err, r.Message)
		}
		return r
	}
	create := func(who string) string {
		t.Helper()
		id := call(who, "create_sandbox", map[string]any{}).SandboxID
		s.ids[id] = true
		return id
	}
	burns := func(who, id, code string) {
		t.Helper()
		r := call(who, "run_code", map[string]any{"sandbox_id": id, "code": code, "timeout_seconds": 60})
		if r.Verdict.Code != "ok" {
			t.Errorf("a run of %s: %+v", who, r)
		}
	}
	stop := func(who, id string) { t.Helper(); call(who, "stop_sandbox", map[string]any{"sandbox_id": id}) }
	begin := func(who, id string) {
		t.Helper()
		call(who, "run_code", map[string]any{"sandbox_id": id, "language": "sh", "stateless": true, "code": "while :; do :; done", "wait_seconds": 0})
	}
	hibernate := func(id string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), s.binary, "hibernate", id, "--config", s.config).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "hibernates on disk") {
			t.Fatalf("hibernate: %v\n%s", err, out)
		}
	}
	// gone waits until no process of a sandbox is left.
	gone := func(id string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); len(s.processes(id)) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("sandbox %s does not end", id)
			}
		}
	}

	for range 3 {
		id := create("stops")
		burns("stops", id, burn)
		stop("stops", id)
	}
	id := create("times-out")
	call("times-out", "run_code", map[string]any{"sandbox_id": id, "language": "sh", "stateless": true, "code": "while :; do :; done", "timeout_seconds": 1})
	begin("times-out", id) // its stop ends it
	stop("times-out", id)

	id = create("is-killed")
	begin("is-killed", id)
	for _, pid := range s.processes(id) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	gone(id)

	awake, asleep := create("sleeps"), create("dies-asleep")
	for range 3 {
		burns("sleeps", awake, burn)
		hibernate(awake)
	}
	burns("sleeps", awake, "pass")
	stop("sleeps", awake)
	burns("dies-asleep", asleep, burn)
	hibernate(asleep)
	stop("dies-asleep", asleep)

	// The server is killed, and the next one takes the sandbox over.
	taken := create("is-taken-over")
	burns("is-taken-over", taken, burn)
	s.kill()
	s.start()
	burns("is-taken-over", taken, burn)
	stop("is-taken-over", taken)
	s.end()

	counted := group.cpu(t)
	out, err := exec.CommandContext(t.Context(), s.binary, "usage", "--by", "principal", "--json", "--config", s.config).Output()
	if err != nil {
		t.Fatal(err)
	}
	var rows []usage.Row
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, r := range rows {
		used := time.Duration(r.CPUMillis) * time.Millisecond
		t.Logf("%s used %v", r.Principal, used)
		sum += used
	}
	differ := 100 * (sum - counted).Seconds() / counted.Seconds()
	t.Logf("the sum is %v, and the host kernel counted %v: %.2f %%", sum, counted, differ)
	if len(rows) != len(names) || differ < -1 || differ > 1 {
		t.Errorf("%d principals differ from the host kernel's count by %.2f %%", len(rows), differ)
	}
}

// A testGroup is the control group of a server, which makes those of sandboxes below it.
type testGroup struct{ dirs []string }

// meteringGroup makes a control group for a server of this test alone. Its group of
// sandboxes stays after the last of them, for its count.
func meteringGroup(t *testing.T) testGroup {
	t.Helper()
	var g testGroup
	for _, controller := range []string{"cpuacct", "cpu", "memory", "pids"} {
		dir := filepath.Join("/sys/fs/cgroup", controller, fmt.Sprintf("glovebox-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skipf("this test needs control groups of version 1: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		})
		g.dirs = append(g.dirs, dir)
	}
	boxes := filepath.Join(g.dirs[0], "glovebox")
	for _, dir := range []string{boxes, filepath.Join(boxes, "stays")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
	}
	return g
}

// cpu returns the CPU time of all sandboxes.
func (g testGroup) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dirs[0], "glovebox", "cpuacct.usage"))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

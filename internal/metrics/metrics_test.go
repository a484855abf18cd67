package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// read returns what the set shows, without what the runtime has.
func read(t *testing.T, s *Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("status %d, %v", w.Code, w.Header())
	}
	return w.Body.String()
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

// all tells a set of one of everything.
func all(s *Set) {
	s.SandboxStarted(context.Background(), 20*time.Millisecond, nil)
	s.SandboxStarted(context.Background(), time.Second, sandbox.Errorf(sandbox.Exhausted, "full"))
	s.SandboxStarted(context.Background(), time.Second, errors.New("a fault"))
	s.SandboxLost()
	s.Evicted()
	s.Hibernated(30*time.Millisecond, nil)
	s.Hibernated(0, sandbox.Errorf(sandbox.Exhausted, "full"))
	s.Woken(90*time.Millisecond, nil)
	s.Woken(time.Second, sandbox.Errorf(sandbox.Unavailable, "damaged"))
	s.Compressed(nil)
	s.Compressed(sandbox.Errorf(sandbox.Conflict, "used"))
	s.Cold(7)
	s.SnapshotDone(SnapshotTaken, 60*time.Millisecond, nil)
	s.SnapshotDone(SnapshotTaken, time.Second, sandbox.Errorf(sandbox.Exhausted, "full"))
	s.SnapshotDone(SnapshotForked, time.Second, nil)
	s.SnapshotDone(SnapshotRolledBack, time.Second, sandbox.Errorf(sandbox.Conflict, "in use"))
	s.SnapshotStood(40 * time.Millisecond)
	s.Queued(3 * time.Second)
	s.Claimed(context.Background(), 700*time.Microsecond)
	s.RunRefused(sandbox.Errorf(sandbox.Invalid, "no"))
	s.RunEnded("python", sandbox.OK, 30*time.Millisecond, 100, 7)
	s.RunEnded("python", sandbox.Timeout, time.Minute, 0, 0)
	s.Connected(sandbox.Connection{Protocol: sandbox.ProtocolTCP, Sent: 10, Received: 1000})
	s.Connected(sandbox.Connection{Protocol: sandbox.ProtocolTCP, Blocked: sandbox.BlockedPolicy, Sent: 1})
	s.Requested(context.Background(), "/mcp", http.MethodPost, 200, 4*time.Millisecond)
	s.Shares(func() fair.Stats { return fair.Stats{Name: "requests"} })
	s.ToolCalled(context.Background(), "run_code", "", time.Millisecond)
	s.ToolCalled(context.Background(), "run_code", sandbox.Invalid, time.Millisecond)
}

func TestCounts(t *testing.T) {
	s := New("v1", "gvisor")
	s.Watch(func(context.Context) State {
		return State{
			Sandboxes: map[sandbox.State]int{sandbox.Running: 3, sandbox.Stopped: 1}, MaxSandboxes: 64, Runs: 2, Queue: 5,
			Workspaces: &Workspaces{Count: 4, Usage: sandbox.WorkspaceUsage{Bytes: 4096, Files: 9}},
			Saved:      &Saved{Count: 5, Bytes: 700, Age: time.Minute},
			Snapshots:  &Snapshots{Counts: map[sandbox.SnapshotState]int{sandbox.SnapshotKept: 6, sandbox.SnapshotLost: 1}, Bytes: 800, Age: time.Hour},
			Pool:       &Pool{Ready: 3, Done: 2, Target: 4, Max: 8, Hits: 10, Misses: 1, Unpooled: 6, Failures: 2, Started: 3, Restored: 12, Prototypes: 1, PrototypeBytes: 9000},
		}
	})
	all(s)
	want(t, read(t, s),
		`glovebox_build_info{version="v1"} 1`,
		`glovebox_sandboxes{driver="gvisor",state="running"} 3`,
		`glovebox_sandboxes{driver="gvisor",state="hibernated"} 0`,
		`glovebox_sandboxes{driver="gvisor",state="stopped"} 1`,
		`glovebox_sandboxes_max 64`,
		`glovebox_sandboxes_lost_total 1`,
		`glovebox_sandbox_starts_total{driver="gvisor",result="ok"} 1`,
		`glovebox_sandbox_starts_total{driver="gvisor",result="exhausted"} 1`,
		`glovebox_sandbox_starts_total{driver="gvisor",result="internal"} 1`,
		`glovebox_sandbox_start_seconds_count{driver="gvisor"} 1`,
		`glovebox_sandbox_start_seconds_bucket{driver="gvisor",le="0.025"} 1`,
		`glovebox_runs_running 2`,
		`glovebox_runs_total{language="python",verdict="ok"} 1`,
		`glovebox_runs_total{language="python",verdict="timeout"} 1`,
		`glovebox_runs_refused_total{kind="invalid"} 1`,
		`glovebox_run_seconds_count{language="python"} 2`,
		`glovebox_run_output_bytes_total{stream="stdout"} 100`,
		`glovebox_run_output_bytes_total{stream="stderr"} 7`,
		`glovebox_queue_length 5`,
		`glovebox_hibernations_total{result="ok"} 1`,
		`glovebox_hibernations_total{result="exhausted"} 1`,
		`glovebox_hibernation_stood_seconds_bucket{le="0.05"} 1`,
		`glovebox_wakes_total{result="ok"} 1`,
		`glovebox_wakes_total{result="unavailable"} 1`,
		`glovebox_compressions_total{result="ok"} 1`,
		`glovebox_compressions_total{result="conflict"} 1`,
		`glovebox_saved_waiting 7`,
		`glovebox_wake_seconds_bucket{le="0.1"} 1`,
		`glovebox_wake_seconds_count 1`,
		`glovebox_saved_sandboxes 5`,
		`glovebox_saved_sandboxes_bytes 700`,
		`glovebox_saved_sandboxes_oldest_seconds 60`,
		`glovebox_snapshot_actions_total{action="take",result="ok"} 1`,
		`glovebox_snapshot_actions_total{action="take",result="exhausted"} 1`,
		`glovebox_snapshot_actions_total{action="rollback",result="conflict"} 1`,
		`glovebox_snapshot_actions_total{action="rollback",result="ok"} 0`,
		`glovebox_snapshot_action_seconds_bucket{action="take",le="0.1"} 1`,
		`glovebox_snapshot_action_seconds_count{action="take"} 1`,
		`glovebox_snapshot_action_seconds_count{action="fork"} 1`,
		`glovebox_snapshot_stood_seconds_bucket{le="0.05"} 1`,
		`glovebox_snapshots{state="kept"} 6`,
		`glovebox_snapshots{state="lost"} 1`,
		`glovebox_snapshots{state="making"} 0`,
		`glovebox_snapshots_bytes 800`,
		`glovebox_snapshots_oldest_seconds 3600`,
		`glovebox_queue_wait_seconds_count 1`,
		`glovebox_evictions_total 1`,
		`glovebox_workspaces 4`,
		`glovebox_workspaces_bytes 4096`,
		`glovebox_workspaces_files 9`,
		`glovebox_pool_sandboxes{state="ready"} 1`,
		`glovebox_pool_sandboxes{state="warm"} 2`,
		`glovebox_pool_target 4`,
		`glovebox_pool_max 8`,
		`glovebox_pool_claims_total{result="hit"} 10`,
		`glovebox_pool_claims_total{result="miss"} 1`,
		`glovebox_pool_claims_total{result="unpooled"} 6`,
		`glovebox_pool_failures_total 2`,
		`glovebox_pool_made_total{how="started"} 3`,
		`glovebox_pool_made_total{how="restored"} 12`,
		`glovebox_pool_prototypes 1`,
		`glovebox_pool_prototypes_bytes 9000`,
		`glovebox_pool_claim_seconds_bucket{le="0.001"} 1`,
		`glovebox_network_connections_total{protocol="tcp"} 1`,
		`glovebox_network_blocked_total{reason="not allowed"} 1`,
		`glovebox_network_bytes_total{direction="sent"} 11`,
		`glovebox_network_bytes_total{direction="received"} 1000`,
		`glovebox_http_requests_total{code="200",method="POST",path="/mcp"} 1`,
		`glovebox_http_request_seconds_count{path="/mcp"} 1`,
	)
	if !strings.Contains(read(t, s), "\nprocess_cpu_seconds_total ") {
		t.Error("nothing of the process")
	}
}

// TestWithoutPool shows nothing of a pool and of workspaces that are not known.
func TestWithoutPool(t *testing.T) {
	s := New("v1", "docker")
	s.Watch(func(context.Context) State { return State{} })
	if text := read(t, s); strings.Contains(text, "glovebox_pool_target") || strings.Contains(text, "glovebox_workspaces") ||
		!strings.Contains(text, `glovebox_sandboxes{driver="docker",state="running"} 0`) {
		t.Errorf("%s", text)
	}
}

// TestBounded has clients and sandboxes that send whatever they like.
func TestBounded(t *testing.T) {
	s := New("v1", "gvisor")
	for i := range 2000 {
		s.Requested(t.Context(), "/mcp", fmt.Sprintf("M%d", i), 600+i, 0)
	}
	if n := strings.Count(read(t, s), "glovebox_http_requests_total{"); n != 1 {
		t.Errorf("%d series", n)
	}
	want(t, read(t, s), `glovebox_http_requests_total{code="other",method="other",path="/mcp"} 2000`)
}

// TestNames checks names and help by the rules of Prometheus.
func TestNames(t *testing.T) {
	s := New("v1", "gvisor")
	s.Watch(func(context.Context) State {
		return State{Workspaces: &Workspaces{}, Saved: &Saved{}, Snapshots: &Snapshots{}, Pool: &Pool{}}
	})
	all(s)
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	secret := regexp.MustCompile(`principal|sandbox_id|run_id|host|token`)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if secret.MatchString(l.GetName()) {
					t.Errorf("%s has a label %s", f.GetName(), l.GetName())
				}
			}
		}
	}
}

// TestDocumented compares what there is with what the guide says there is.
func TestDocumented(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	s := New("v1", "gvisor")
	s.Watch(func(context.Context) State {
		return State{Workspaces: &Workspaces{}, Saved: &Saved{}, Snapshots: &Snapshots{}, Pool: &Pool{}}
	})
	all(s)
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		there[name] = true
		if strings.HasPrefix(name, "glovebox_") && name != "glovebox_build_info" && !strings.Contains(string(guide), "`"+name+"`") {
			t.Errorf("the guide lacks %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`glovebox_[a-z_]+`).FindAllString(string(guide), -1) {
		if !there[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("the guide has %s, which does not exist", name)
		}
	}
}

func TestNil(*testing.T) { all(nil) }

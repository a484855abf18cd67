package engine

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// counted returns what a set shows, by the name of the series.
func counted(t *testing.T, s *metrics.Set) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	values := map[string]float64{}
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if !strings.HasPrefix(line, "glovebox_") {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		values[line[:i]] = value
	}
	return values
}

func wantCounted(t *testing.T, s *metrics.Set, want map[string]float64) {
	t.Helper()
	got := counted(t, s)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %v, want %v", name, got[name], value)
		}
	}
}

// TestMetricsOfRuns has runs of languages, of a command, and one that does not
// start.
func TestMetricsOfRuns(t *testing.T) {
	set := metrics.New("v1", "fake")
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) { o.Metrics = set })
	s, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	e.mustRun(t, sandbox.RunRequest{SandboxID: s.ID, Code: "echo 12345", Language: "bash"})
	e.mustRun(t, sandbox.RunRequest{SandboxID: s.ID, Code: "echo no >&2; exit 3", Language: "bash"})
	e.mustRun(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"true"}})
	if _, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Code: "x", Language: "klingon"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("%v", err)
	}
	wantCounted(t, set, map[string]float64{
		`glovebox_sandbox_starts_total{driver="fake",result="ok"}`: 1,
		`glovebox_sandbox_start_seconds_count{driver="fake"}`:      1,
		`glovebox_runs_total{language="bash",verdict="ok"}`:        1,
		`glovebox_runs_total{language="bash",verdict="failed"}`:    1,
		`glovebox_runs_total{language="none",verdict="ok"}`:        1,
		`glovebox_run_seconds_count{language="bash"}`:              2,
		`glovebox_runs_refused_total{kind="invalid"}`:              1,
		`glovebox_run_output_bytes_total{stream="stdout"}`:         6,
		`glovebox_run_output_bytes_total{stream="stderr"}`:         3,
		`glovebox_sandboxes_lost_total`:                            0,
	})
}

// TestMetricsOfAFullServer counts who waits, who gets a place and who goes.
func TestMetricsOfAFullServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New("v1", "world")
		e, _, _ := fill(t, func(o *Options) { o.Metrics = set })
		done := make(chan error)
		go func() {
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			done <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if st := e.Stats(); st.Waiting != 1 || st.Runs != 1 || st.Sandboxes[sandbox.Running] != 2 {
			t.Errorf("%+v while one waits", st)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); err != nil {
			t.Errorf("in place of the second, idle by then: %v", err)
		}
		wantCounted(t, set, map[string]float64{
			`glovebox_evictions_total`:                                  2,
			`glovebox_queue_wait_seconds_count`:                         2,
			`glovebox_queue_wait_seconds_bucket{le="5"}`:                0,
			`glovebox_sandbox_starts_total{driver="world",result="ok"}`: 4,
		})
		if st := e.Stats(); st.Waiting != 0 || st.Sandboxes[sandbox.Running] != 2 || st.Sandboxes[sandbox.Stopped] != 0 {
			t.Errorf("%+v in the end", st)
		}
	})
}

// TestMetricsOfTheLost has a sandbox that dies.
func TestMetricsOfTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New("v1", "world")
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Metrics = set })
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "5s"}})
		w.only(t).die()
		e.mustWait(t, r.ID)
		wantCounted(t, set, map[string]float64{
			`glovebox_sandboxes_lost_total`:                               1,
			`glovebox_runs_total{language="none",verdict="sandbox_lost"}`: 1,
		})
	})
}

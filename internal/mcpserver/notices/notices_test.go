package notices

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const alice = sandbox.Principal("alice")

// fakeEngine has alice's sandboxes and runs.
type fakeEngine struct {
	mu    sync.Mutex
	boxes []sandbox.Sandbox
	runs  []sandbox.ListedRun // newest first
	looks int
}

func (e *fakeEngine) List(_ context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looks++
	if p != alice {
		return nil, nil
	}
	return append([]sandbox.Sandbox(nil), e.boxes...), nil
}

func (e *fakeEngine) LastRuns(_ context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p != alice {
		return nil, nil
	}
	return append([]sandbox.ListedRun(nil), e.runs[:min(limit, len(e.runs))]...), nil
}

func (e *fakeEngine) box(id string, state sandbox.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.boxes {
		if e.boxes[i].ID == id {
			e.boxes[i].State, e.boxes[i].Cause = state, "out of memory"
			return
		}
	}
	e.boxes = append(e.boxes, sandbox.Sandbox{ID: id, Name: "secret", State: state, Created: time.Now()})
}

func (e *fakeEngine) run(id string, code sandbox.VerdictCode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := sandbox.ListedRun{Program: "secret"}
	r.ID, r.SandboxID, r.Status, r.Started = id, "sbx_1", sandbox.RunRunning, time.Now()
	if code != "" {
		r.Status, r.Verdict = sandbox.RunFinished, sandbox.Verdict{Code: code, Cause: "secret"}
		r.Network = &sandbox.RunNetwork{}
		if code == sandbox.Failed {
			r.Network.Blocked = []sandbox.Destination{{Host: "secret.example.com"}}
		}
	}
	for i := range e.runs {
		if e.runs[i].ID == id {
			r.Started = e.runs[i].Started
			e.runs[i] = r
			return
		}
	}
	e.runs = append([]sandbox.ListedRun{r}, e.runs...)
}

// fakeSession keeps the messages that it gets.
type fakeSession struct {
	mu   sync.Mutex
	got  []string
	ends chan struct{}
}

func newSession() *fakeSession { return &fakeSession{ends: make(chan struct{})} }

func (s *fakeSession) Wait() error { <-s.ends; return nil }

func (s *fakeSession) Log(_ context.Context, p *mcp.LoggingMessageParams) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := p.Data.(data)
	s.got = append(s.got, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s %s %d", p.Level, d.Event, d.SandboxID, d.RunID, d.Verdict, d.Cause, d.Count)), " "))
	return nil
}

// take returns the messages since the last call.
func (s *fakeSession) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// look lets the time of one look pass.
func look() {
	time.Sleep(lookEvery)
	synctest.Wait()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		e.box("sbx_0", sandbox.Running)
		e.run("run_old", sandbox.OK)
		e.run("run_going", "")
		n := New(e, quiet())
		defer n.Close()
		a, bob := newSession(), newSession()
		defer close(bob.ends)
		n.Follow(t.Context(), alice, a)
		n.Follow(t.Context(), alice, a) // the level changed
		n.Follow(t.Context(), "bob", bob)
		expect := func(what string, want ...string) {
			t.Helper()
			look()
			if diff := cmp.Diff(want, a.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		expect("the state before the level was set")

		time.Sleep(time.Millisecond)
		e.box("sbx_1", sandbox.Running)
		e.run("run_1", "")
		expect("a start", "info sandbox_started sbx_1 0")
		e.run("run_going", sandbox.OK)
		e.run("run_1", sandbox.Failed)
		e.run("run_quick", sandbox.OutOfMemory)
		expect("the ends of runs", "info run_ended sbx_1 run_going ok 0", "warning network_refused sbx_1 run_1 1",
			"warning run_ended sbx_1 run_1 failed 0", "warning run_ended sbx_1 run_quick out_of_memory 0")
		expect("no change")

		// A run whose end a call returns has no notice of its end.
		e.run("run_2", "")
		done := n.Waiting(alice, "run_2")
		e.run("run_2", sandbox.OK)
		expect("a call that waits")
		done(true)
		e.run("run_3", sandbox.OK)
		n.Waiting(alice, "run_3")(true)
		expect("a call that returned")
		e.run("run_4", "")
		n.Waiting(alice, "run_4")(false)
		expect("a call that gave up")
		e.run("run_4", sandbox.Timeout)
		expect("the end after a call that gave up", "warning run_ended sbx_1 run_4 timeout 0")

		e.box("sbx_1", sandbox.Stopped)
		expect("a stop", "notice sandbox_stopped sbx_1 out of memory 0")
		if got := bob.take(); len(got) > 0 {
			t.Errorf("another principal's session got %q", got)
		}
		close(a.ends)
		synctest.Wait()
		e.box("sbx_2", sandbox.Running)
		expect("after the end of the session")
	})
}

// TestNoticesAreBounded checks the rate, and that an idle principal costs nothing.
func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		n := New(e, quiet())
		s := newSession()
		n.Follow(t.Context(), alice, s)
		for range 10 {
			look()
		}
		if e.looks != 1 {
			t.Errorf("%d looks without a sandbox or a call, want 1", e.looks)
		}
		for i := range 50 {
			e.box(fmt.Sprint("sbx_", i), sandbox.Running)
		}
		n.Touch(alice)
		look()
		if got := s.take(); len(got) != burst {
			t.Errorf("%d notices of 50 starts, want %d", len(got), burst)
		}
		look()
		if diff := cmp.Diff([]string{"notice notices_dropped 30"}, s.take()); diff != "" {
			t.Errorf("after the burst (-want +got):\n%s", diff)
		}
		n.Close()
		n.Follow(t.Context(), alice, newSession()) // too late, and starts nothing
		close(s.ends)
		synctest.Wait()
		if len(n.followers) != 0 {
			t.Errorf("%d followers are left", len(n.followers))
		}
	})
}

package run

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// fakeRecords are the records of runs, in memory.
type fakeRecords struct {
	mu   sync.Mutex
	runs map[string]store.Run
}

func (f *fakeRecords) Run(_ context.Context, id string) (store.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rec, ok := f.runs[id]
	if !ok {
		return rec, sandbox.Errorf(sandbox.NotFound, "no run %s", id)
	}
	return rec, nil
}

func (f *fakeRecords) InsertRun(_ context.Context, rec store.Run) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[rec.ID] = rec
	return nil
}

func (f *fakeRecords) FinishRun(ctx context.Context, rec store.Run) (bool, error) {
	return true, f.InsertRun(ctx, rec)
}

func (f *fakeRecords) SetService(_ context.Context, rec store.Run) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.runs[rec.ID]
	kept.Service, kept.Keeping = rec.Service, rec.Keeping
	f.runs[rec.ID] = kept
	return nil
}

// requestStop records a request of the run's owner at another process.
func (f *fakeRecords) requestStop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rec := f.runs[id]
	rec.StopRequested = true
	f.runs[id] = rec
}

func (f *fakeRecords) DeleteRun(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.runs, id)
	return nil
}

func (f *fakeRecords) KeptLogs(context.Context) ([]store.KeptLog, error) { return nil, nil }

// fakeLife is the life of a sandbox that does not stop by itself.
type fakeLife struct {
	mu    sync.Mutex
	ended []string
	why   *verdict.Reason // of GiveUp

	rests   atomic.Bool  // the sandbox rests
	mayRest atomic.Int32 // calls of MayRest
}

func (f *fakeLife) Status() (why *verdict.Reason, runs, requests int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why, 1, 0
}

func (f *fakeLife) Ended(r *Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, r.ID())
}

func (f *fakeLife) GiveUp(why verdict.Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why = &why
}

func (f *fakeLife) Dead(context.Context) bool                  { return false }
func (f *fakeLife) Lost()                                      {}
func (f *fakeLife) StayAwake() (func(), bool)                  { return func() {}, !f.rests.Load() }
func (f *fakeLife) Hold(context.Context) (func(), error)       { return func() {}, nil }
func (f *fakeLife) MayRest()                                   { f.mayRest.Add(1) }
func (f *fakeLife) BusyFor(context.Context, time.Duration)     {}
func (f *fakeLife) Explain(_ context.Context, err error) error { return err }
func (f *fakeLife) Incidents(context.Context) (driver.Incidents, bool) {
	return driver.Incidents{}, false
}
func (f *fakeLife) Undo(context.Context, string) error   { return nil }
func (f *fakeLife) Forget(context.Context, string) error { return nil }
func (f *fakeLife) Policy() sandbox.Network              { return sandbox.NetworkNone }

func (f *fakeLife) MaxPolicy() sandbox.Network { return sandbox.NetworkNone }

// fakeGuest runs one program, whose events are the test's.
type fakeGuest struct {
	guestlink.Guest // any other call panics

	failing error         // of Start
	timeout time.Duration // of the last Start
	request *guestapi.StartRequest
	events  chan guestapi.Event
	signals chan struct{} // a value for each Signal
}

// Changes knows none: the agent is not ours.
func (g *fakeGuest) Changes(context.Context, guestapi.ChangesRequest) (*guestapi.ChangesResponse, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "find changes: not here")
}

func (g *fakeGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	g.timeout, g.request = opts.Timeout, req
	if g.failing != nil {
		return nil, g.failing
	}
	return fakeStream{ctx, g.events}, nil
}

func (g *fakeGuest) Connect(ctx context.Context, _ guestapi.ProcessSelector, _ guestapi.OutputCounts) (guestlink.Events, error) {
	return fakeStream{ctx, g.events}, ctx.Err()
}

// ListDir fails, so that no figure can be read.
func (g *fakeGuest) ListDir(context.Context, string, int, guestapi.FileOptions) (*guestapi.ListDirResponse, error) {
	return nil, context.DeadlineExceeded
}

func (g *fakeGuest) Signal(context.Context, guestapi.ProcessSelector, guestapi.Signal) error {
	if g.failing != nil {
		return sandbox.Errorf(sandbox.NotFound, "no process")
	}
	g.signals <- struct{}{}
	return nil
}

type fakeStream struct {
	ctx    context.Context
	events chan guestapi.Event
}

func (s fakeStream) Next() (*guestapi.Event, error) {
	select {
	case ev, ok := <-s.events:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		return &ev, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (fakeStream) Close() error { return nil }

// A world is a set of runs in one sandbox of fakes.
type world struct {
	set     *Set
	sandbox *Sandbox
	records *fakeRecords
	life    *fakeLife
	guest   *fakeGuest

	released atomic.Int32 // how often the uses of the sandbox were released
}

func newWorld(t *testing.T) *world {
	t.Helper()
	logs, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		background.Wait()
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	})
	work := func(f func()) bool { background.Go(f); return true }
	w := &world{
		records: &fakeRecords{runs: map[string]store.Run{}}, life: &fakeLife{},
		guest: &fakeGuest{events: make(chan guestapi.Event, 10), signals: make(chan struct{}, 10)},
	}
	running, kept := runlog.Pools(1<<30, runlog.MinSize)
	w.set = NewSet(ctx, Options{
		Records: w.records, Log: slog.New(slog.DiscardHandler), Now: time.Now, Work: work, Spawn: work,
		Missing: func(image string, from func(string) error) error { return from(image) },
		Logs:    logs, LogSize: runlog.MinSize, RunningLogs: running, KeptLogs: kept, LongEvents: LongEvents(),
		MaxTimeout: time.Hour,
	})
	w.sandbox = w.set.NewSandbox(SandboxOptions{ID: sandbox.NewID(), Principal: "alice", Guest: w.guest, Life: w.life})
	return w
}

// begin starts a run of a command.
func (w *world) begin(t *testing.T, timeout time.Duration) (*Run, error) {
	t.Helper()
	req := sandbox.RunRequest{Argv: []string{"program"}, Timeout: timeout}
	prog, err := NewProgram(req, nil)
	if err != nil {
		t.Fatal(err)
	}
	order := Order{Request: req, Program: prog, Release: func() { w.released.Add(1) }}
	r := w.sandbox.New(t.Context(), order)
	_, err = r.Start(t.Context(), order)
	return r, err
}

// mustBegin starts a run of a command, which must begin.
func (w *world) mustBegin(t *testing.T, timeout time.Duration) *Run {
	t.Helper()
	r, err := w.begin(t, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func exited(code int) guestapi.Event {
	return guestapi.Event{End: &guestapi.End{Status: guestapi.EndExit, ExitCode: &code}}
}

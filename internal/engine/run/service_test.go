package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/service"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// serviceGuest is a fakeGuest that also has files, ports and commands.
type serviceGuest struct {
	*fakeGuest
	starts chan time.Time // a value for each start of the service
	files  map[string][]byte

	alive, listens atomic.Bool // a program runs; a program listens on the port
	ports          atomic.Pointer[[]int]
	command        atomic.Pointer[guestapi.Event]
}

func (g *serviceGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	if req.Tag == "" { // a check
		events := make(chan guestapi.Event, 1)
		events <- *g.command.Load()
		return fakeStream{ctx, events}, nil
	}
	g.starts <- time.Now()
	g.alive.Store(true)
	return g.fakeGuest.Start(ctx, req, opts)
}

func (g *serviceGuest) Connect(ctx context.Context, s guestapi.ProcessSelector, have guestapi.OutputCounts) (guestlink.Events, error) {
	if !g.alive.Load() {
		return nil, sandbox.Errorf(sandbox.NotFound, "no process")
	}
	return g.fakeGuest.Connect(ctx, s, have)
}

func (g *serviceGuest) Signal(ctx context.Context, s guestapi.ProcessSelector, sig guestapi.Signal) error {
	if !g.alive.Load() {
		return sandbox.Errorf(sandbox.NotFound, "no process")
	}
	g.events <- guestapi.Event{End: &guestapi.End{Status: guestapi.EndDied, Detail: guestapi.EndDetail{Signal: 9}}}
	return nil
}

func (g *serviceGuest) DialPort(context.Context, int) (guestlink.HalfCloser, error) {
	if !g.listens.Load() {
		return nil, sandbox.Errorf(sandbox.Unavailable, "connection refused")
	}
	a, b := net.Pipe()
	b.Close()
	return halfCloser{a}, nil
}

func (g *serviceGuest) Listening(context.Context, guestapi.ProcessSelector) ([]int, error) {
	switch p := g.ports.Load(); {
	case p != nil && g.alive.Load():
		return *p, nil
	case g.listens.Load() && g.alive.Load():
		return []int{80}, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no process")
}

type halfCloser struct{ net.Conn }

func (halfCloser) CloseWrite() error { return nil }

func (g *serviceGuest) Write(_ context.Context, path string, r io.Reader, _ guestapi.WriteOptions) (*guestapi.WriteInfo, error) {
	b, err := io.ReadAll(r)
	g.files[path] = b
	return nil, err
}

func (g *serviceGuest) Read(_ context.Context, path string, _, _ int64, _ guestapi.FileOptions) (io.ReadCloser, int64, error) {
	b, ok := g.files[path]
	if !ok {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "no file")
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (g *serviceGuest) Remove(_ context.Context, path string, _ guestapi.FileOptions) error {
	delete(g.files, path)
	return nil
}

// ends lets the program end.
func (g *serviceGuest) ends(code int) {
	g.alive.Store(false)
	status := guestapi.EndExit
	if code == 0 {
		status = guestapi.EndOK
	}
	g.events <- guestapi.Event{End: &guestapi.End{Status: status, ExitCode: &code}}
}

// newServices returns a world whose guest has services, as of a server.
func newServices(t *testing.T) (*world, *serviceGuest) {
	t.Helper()
	w := newWorld(t)
	g := &serviceGuest{fakeGuest: w.guest, starts: make(chan time.Time, 100), files: map[string][]byte{}}
	w.set.opts.Detached = true
	w.sandbox = w.set.NewSandbox(SandboxOptions{ID: sandbox.NewID(), Principal: "alice", Guest: g, Life: w.life})
	return w, g
}

func (w *world) serve(t *testing.T, req sandbox.ServiceRequest) *Run {
	t.Helper()
	if err := service.Check(&req); err != nil {
		t.Fatal(err)
	}
	run := sandbox.RunRequest{Argv: []string{"program"}, Timeout: sandbox.Forever, Service: &req}
	prog, err := NewProgram(run, nil)
	if err != nil {
		t.Fatal(err)
	}
	order := Order{Request: run, Program: prog, Env: map[string]string{"KEY": "value"}, Release: func() { w.released.Add(1) }}
	r := w.sandbox.New(t.Context(), order)
	if _, err = r.Start(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) state(t *testing.T, r *Run) sandbox.Service {
	t.Helper()
	synctest.Wait()
	rec, err := w.records.Run(t.Context(), r.ID())
	if err != nil {
		t.Fatal(err)
	}
	seen, _ := r.View()
	if d := cmp.Diff(rec.Service, seen.Service); d != "" {
		t.Errorf("the record differs from the run: -record +run\n%s", d)
	}
	return *seen.Service
}

// TestServiceRestarts crashes in a loop after it was ready: the waits grow to a minute, and begin again
// after a healthy minute. In the end the service is stopped while it waits.
func TestServiceRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		r := w.serve(t, sandbox.ServiceRequest{Name: "web", Restart: sandbox.RestartOnFailure})
		<-g.starts
		time.Sleep(2 * settleTime)
		var waits []time.Duration
		for range 8 {
			ended := time.Now()
			g.ends(3)
			waits = append(waits, (<-g.starts).Sub(ended))
		}
		time.Sleep(time.Minute)
		ended := time.Now()
		g.ends(3)
		waits = append(waits, (<-g.starts).Sub(ended))
		var want []time.Duration
		for _, s := range []int{1, 2, 4, 8, 16, 32, 60, 60, 1} {
			want = append(want, time.Duration(s)*time.Second)
		}
		if d := cmp.Diff(want, waits); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		if s := w.state(t, r); s.State != sandbox.ServiceRunning || s.Restarts != 9 || s.LastExit == nil || *s.LastExit != 3 {
			t.Errorf("%+v", s)
		}
		g.ends(3)
		if s := w.state(t, r); s.State != sandbox.ServiceRestarting {
			t.Errorf("while it waits: %+v", s)
		}
		begun := time.Now()
		r.Kill(verdict.FateCancelled, nil)
		got, err := r.Wait(t.Context())
		if err != nil || got.Verdict.Code != sandbox.Cancelled || got.Service.State != sandbox.ServiceEnded || time.Since(begun) != 0 {
			t.Errorf("%+v, %+v, %v after %v", got.Verdict, got.Service, err, time.Since(begun))
		}
		synctest.Wait()
		if len(g.starts) != 0 || len(g.files) != 0 || w.released.Load() != 1 {
			t.Errorf("%d starts and %d files are left, %d uses released", len(g.starts), len(g.files), w.released.Load())
		}
		if log := r.Files().Tail(r.Extents(), 1<<10); !strings.Contains(log, "[the service exited with status 3, and starts again in 2s]\n") {
			t.Errorf("the log has %q", log)
		}
	})
}

// TestServicePolicies: the policy decides whether an end is the last.
func TestServicePolicies(t *testing.T) {
	for _, c := range []struct {
		restart sandbox.RestartPolicy
		code    int
		again   bool
		want    sandbox.VerdictCode
	}{
		{"", 1, false, sandbox.Failed}, {"", 0, false, sandbox.OK},
		{sandbox.RestartOnFailure, 1, true, ""}, {sandbox.RestartOnFailure, 0, false, sandbox.OK},
		{sandbox.RestartAlways, 0, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, g := newServices(t)
			r := w.serve(t, sandbox.ServiceRequest{Restart: c.restart})
			<-g.starts
			time.Sleep(time.Hour) // a service has no timeout
			g.ends(c.code)
			if c.again {
				<-g.starts
				g.ends(c.code)
				synctest.Wait()
				r.Kill(verdict.FateCancelled, nil)
				return
			}
			if got, err := r.Wait(t.Context()); err != nil || got.Verdict.Code != c.want || *got.ExitCode != c.code {
				t.Errorf("%q, %d: %+v, %v", c.restart, c.code, got, err)
			}
			synctest.Wait()
		})
	}
}

// TestServiceStoppedElsewhere has another process ask for the end of a service, and
// kill its program. The service must not start again.
func TestServiceStoppedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
		<-g.starts
		w.records.requestStop(r.ID())
		g.ends(137)
		got, err := r.Wait(t.Context())
		if err != nil || got.Verdict.Code != sandbox.Cancelled {
			t.Errorf("%+v, %v", got, err)
		}
		if len(g.starts) != 0 {
			t.Error("the service started again")
		}
		synctest.Wait()
	})
}

// TestServiceReady tries each check. A service that is not ready in time is ended.
func TestServiceReady(t *testing.T) {
	ok, failed := guestapi.Event{End: &guestapi.End{Status: guestapi.EndOK}}, exited(1)
	for name, c := range map[string]struct {
		check *sandbox.ReadyCheck
		begin func(*serviceGuest) // what makes it ready
		want  string              // the cause, if it is not
	}{
		"NoCheck":   {nil, func(*serviceGuest) {}, ""},
		"Port":      {&sandbox.ReadyCheck{Port: 80}, func(g *serviceGuest) { g.listens.Store(true) }, ""},
		"Output":    {&sandbox.ReadyCheck{Output: `^listening on \d+$`}, func(g *serviceGuest) { g.says("first\nlistening"); g.says(" on 80\n") }, ""},
		"Command":   {&sandbox.ReadyCheck{Command: "check"}, func(g *serviceGuest) { g.command.Store(&ok) }, ""},
		"NoPort":    {&sandbox.ReadyCheck{Port: 80, Timeout: 5 * time.Second}, nil, "nothing listened on port 80 within 5s"},
		"NoOutput":  {&sandbox.ReadyCheck{Output: `x`}, func(g *serviceGuest) { g.says("abc\n") }, `no line of its output matched "x" within 1m0s`},
		"NoSuccess": {&sandbox.ReadyCheck{Command: "check"}, nil, "the command for ready did not succeed within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := newServices(t)
				g.command.Store(&failed)
				r := w.serve(t, sandbox.ServiceRequest{Ready: c.check, Restart: sandbox.RestartAlways})
				time.Sleep(time.Second / 2)
				if s := w.state(t, r); s.State != sandbox.ServiceStarting {
					t.Errorf("at first: %+v", s)
				}
				if c.begin != nil {
					c.begin(g)
				}
				got, err := r.WaitReady(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if c.want != "" {
					if got, err = r.Wait(t.Context()); got.Verdict.Code != sandbox.Timeout || !strings.Contains(got.Verdict.Cause, c.want) {
						t.Errorf("%+v, %v", got.Verdict, err)
					}
					synctest.Wait()
					return
				}
				if s := w.state(t, r); got.Service.State != sandbox.ServiceRunning || s.State != sandbox.ServiceRunning {
					t.Errorf("ready: %+v, then %+v", got.Service, s)
				}
				if c.check != nil && c.check.Port != 0 && !cmp.Equal(got.Service.Ports, []int{80}) {
					t.Errorf("ports %v", got.Service.Ports)
				}
				r.Kill(verdict.FateCancelled, nil)
				synctest.Wait()
			})
		})
	}
}

// TestServicePorts: the ports of a service are found when it is ready, and later, but
// not while its sandbox rests. They end with the program.
func TestServicePorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		listen := func(ports ...int) { g.ports.Store(&ports) }
		listen(80)
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
		got, err := r.WaitReady(t.Context())
		if err != nil || !cmp.Equal(got.Service.Ports, []int{80}) {
			t.Errorf("when ready: %+v, %v", got.Service, err)
		}
		time.Sleep(time.Hour)
		listen(80, 443)
		time.Sleep(longestLook)
		if s := w.state(t, r); !cmp.Equal(s.Ports, []int{80, 443}) {
			t.Errorf("later: %+v", s)
		}
		w.life.rests.Store(true)
		listen(22)
		time.Sleep(time.Hour)
		if s := w.state(t, r); !cmp.Equal(s.Ports, []int{80, 443}) {
			t.Errorf("while the sandbox rests: %+v", s)
		}
		w.life.rests.Store(false)
		<-g.starts
		g.ends(1)
		if s := w.state(t, r); len(s.Ports) != 0 {
			t.Errorf("after the program's end: %+v", s)
		}
		<-g.starts
		time.Sleep(shortestLook)
		if s := w.state(t, r); !cmp.Equal(s.Ports, []int{22}) {
			t.Errorf("after a restart: %+v", s)
		}
		r.Kill(verdict.FateCancelled, nil)
		synctest.Wait()
	})
}

// TestServiceDozes: a service that a request wakes lets its sandbox rest while its
// program runs, and neither before it is ready, nor while it waits to start again.
func TestServiceDozes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways, Wake: sandbox.WakeRequest})
		dozes := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := r.Dozes(); got != want {
				t.Errorf("%s: dozes %v", when, got)
			}
		}
		<-g.starts
		dozes("before it is ready", false)
		if _, err := r.WaitReady(t.Context()); err != nil || w.life.mayRest.Load() == 0 {
			t.Errorf("%v, the sandbox was told %d times", err, w.life.mayRest.Load())
		}
		dozes("when it is ready", true)
		g.ends(1)
		dozes("before it starts again", false)
		<-g.starts
		dozes("when it runs again", true)
		r.Kill(verdict.FateCancelled, nil)
		dozes("after its end", false)

		other := w.serve(t, sandbox.ServiceRequest{})
		<-g.starts
		if _, err := other.WaitReady(t.Context()); err != nil || other.Dozes() {
			t.Errorf("a service that keeps its sandbox awake: %v, dozes %v", err, other.Dozes())
		}
		other.Kill(verdict.FateCancelled, nil)
		synctest.Wait()
	})
}

// TestServiceSettles: a service without a check is ready when a program of it has run
// for settleTime. A program that ends sooner counts for nothing, and its successor
// has the whole time.
func TestServiceSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		begun := time.Now()
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartOnFailure})
		for range 2 { // it starts again after 1 s, and then after 2 s
			<-g.starts
			time.Sleep(settleTime * 9 / 10)
			g.ends(1)
			time.Sleep(settleTime / 2)
			if s := w.state(t, r); s.State != sandbox.ServiceRestarting {
				t.Errorf("after an early end: %+v", s)
			}
		}
		got, err := r.WaitReady(t.Context())
		if err != nil || got.Service.State != sandbox.ServiceRunning || got.Service.Restarts != 2 {
			t.Errorf("%+v, %v", got.Service, err)
		}
		if took, want := time.Since(begun), 2*settleTime*9/10+3*time.Second+settleTime; took != want {
			t.Errorf("ready after %v, want %v", took, want)
		}
		// Once it was ready, it stays so.
		<-g.starts
		g.ends(1)
		<-g.starts
		if s := w.state(t, r); s.State != sandbox.ServiceRunning {
			t.Errorf("started again: %+v", s)
		}
		r.Kill(verdict.FateCancelled, nil)
		synctest.Wait()
	})
}

// TestServiceNeverSettles: the policy decides about a program that ends at once. The
// run of one that is started again ends when the time for being ready is over.
func TestServiceNeverSettles(t *testing.T) {
	for policy, want := range map[sandbox.RestartPolicy]struct {
		verdict sandbox.VerdictCode
		after   time.Duration
		cause   string
	}{
		sandbox.RestartNever:     {sandbox.Failed, settleTime / 2, ""},
		sandbox.RestartOnFailure: {sandbox.Timeout, time.Minute, "its program never ran for 1s within 1m0s"},
		sandbox.RestartAlways:    {sandbox.Timeout, time.Minute, "its program never ran for 1s within 1m0s"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := newServices(t)
				begun := time.Now()
				r := w.serve(t, sandbox.ServiceRequest{Restart: policy})
				go func() {
					for {
						select {
						case <-g.starts:
							time.Sleep(settleTime / 2)
							g.ends(1)
						case <-r.Done():
							return
						}
					}
				}()
				got, err := r.WaitReady(t.Context())
				if err != nil || got.Status != sandbox.RunFinished || got.Verdict.Code != want.verdict || !strings.Contains(got.Verdict.Cause, want.cause) {
					t.Errorf("%+v, %+v, %v", got.Service, got.Verdict, err)
				}
				if took := time.Since(begun); took != want.after {
					t.Errorf("after %v, want %v", took, want.after)
				}
				if rec, err := w.records.Run(t.Context(), r.ID()); err != nil || rec.Keeping.IsReady {
					t.Errorf("recorded as ready: %+v, %v", rec.Keeping, err)
				}
				synctest.Wait()
			})
		})
	}
}

// TestServiceSettlesElsewhere leaves a service that never was ready. The next process
// does not know how long the program runs, so it gives it the whole time.
func TestServiceSettlesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
		<-g.starts
		time.Sleep(settleTime / 2)
		r.LetGo()
		EndWithin(time.Second, []*Run{r})
		rec, err := w.records.Run(t.Context(), r.ID())
		if err != nil || rec.Keeping.IsReady {
			t.Fatalf("record: %+v, %v", rec, err)
		}
		begun := time.Now()
		next := w.sandbox.Reopen(rec, func() { w.released.Add(1) })
		next.Resume()
		if _, err := next.WaitReady(t.Context()); err != nil || time.Since(begun) != settleTime {
			t.Errorf("ready after %v, %v", time.Since(begun), err)
		}
		next.Kill(verdict.FateCancelled, nil)
		synctest.Wait()
	})
}

func (g *serviceGuest) says(text string) {
	g.events <- guestapi.Event{Data: &guestapi.DataEvent{Stdout: []byte(text)}}
}

// TestServiceIsLeft leaves a service to the next process: while it runs, and while it
// waits for its next start. The next process starts it again by the kept request.
func TestServiceIsLeft(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, g := newServices(t)
			r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
			<-g.starts
			g.says("before\n")
			time.Sleep(2 * time.Second)
			if waits {
				g.ends(1)
				synctest.Wait()
			}
			r.LetGo()
			if !EndWithin(time.Second, []*Run{r}) {
				t.Fatal("the service is not left")
			}
			rec, err := w.records.Run(t.Context(), r.ID())
			if err != nil || rec.Status != sandbox.RunRunning || !rec.Keeping.IsReady {
				t.Fatalf("record: %+v, %v", rec, err)
			}
			next := w.sandbox.Reopen(rec, func() { w.released.Add(1) })
			next.Resume()
			if !waits {
				synctest.Wait()
				if len(g.starts) != 0 {
					t.Error("a service that runs was started again")
				}
				g.ends(1)
			}
			<-g.starts
			if s := w.state(t, next); s.State != sandbox.ServiceRunning || s.Restarts != 1 {
				t.Errorf("%+v", s)
			}
			if have := next.have(); have.Stdout != 0 || have.Stderr != 0 {
				t.Errorf("the guest is told that %+v of the new program is kept", have)
			}
			if g.request.Process.Cmd != "program" || g.request.Process.Envs["KEY"] != "value" || !g.request.Keep || g.request.Tag != rec.ID {
				t.Errorf("started %+v", g.request)
			}
			next.Kill(verdict.FateCancelled, nil)
			synctest.Wait()
			if w.released.Load() != 1 { // the next process has a use of its own
				t.Errorf("%d uses released", w.released.Load())
			}
		})
	}
}

// TestServiceStartFile: the file is sealed, and one that the sandbox changed starts
// nothing.
func TestServiceStartFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
		<-g.starts
		path := r.startPath()
		sealed := string(g.files[path])
		if strings.Contains(sealed, "program") || strings.Contains(sealed, "value") {
			t.Fatalf("the file shows what it has: %q", sealed)
		}
		flipped := []byte(sealed)
		flipped[len(flipped)/2] ^= 1
		other := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
		<-g.starts
		others := string(g.files[other.startPath()])
		r.LetGo()
		other.LetGo()
		EndWithin(time.Second, []*Run{r, other})
		for _, text := range []string{"", "{}", `{"request":{}}`, sealed[1:], sealed[:len(sealed)-1], sealed + "x", string(flipped), others, strings.Repeat("x", maxStartFile+1)} {
			g.files[path] = []byte(text)
			rec, err := w.records.Run(t.Context(), r.ID())
			if err != nil {
				t.Fatal(err)
			}
			next := w.sandbox.Reopen(rec, func() {})
			if err := next.loadStart(); !errors.Is(err, sandbox.Unavailable) {
				t.Errorf("%.20q gives %v", text, err)
			}
			next.Refuse()
		}
	})
}

// TestServiceFloods writes more than the log may have: its head and its newest part
// stay.
func TestServiceFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := newServices(t)
		w.set.opts.LogSize = 64 << 20
		r := w.serve(t, sandbox.ServiceRequest{})
		g.says("head\n")
		for range 40 {
			g.says(strings.Repeat("x", 1<<20))
		}
		g.says("tail\n")
		synctest.Wait()
		x := r.Extents()[runlog.Stdout]
		if x.Total != 40<<20+10 || x.Kept() > runlog.MinSize+1<<20 {
			t.Errorf("%d bytes are kept of %d", x.Kept(), x.Total)
		}
		for at, want := range map[int64]string{0: "head\n", x.Total - 5: "tail\n"} {
			if b, err := r.Files().Read(runlog.Stdout, x, at, 5); err != nil || string(b) != want {
				t.Errorf("at %d: %q, %v", at, b, err)
			}
		}
		r.Kill(verdict.FateCancelled, nil)
		synctest.Wait()
	})
}

// TestServiceFullDisk: a full workspace, and a log that cannot be kept, end a service
// for good, whatever its policy.
func TestServiceFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		fill func(*Run)
		want sandbox.VerdictCode
	}{
		"Workspace": {func(r *Run) { r.EndFull(sandbox.Errorf(sandbox.Exhausted, "the workspace is full")) }, sandbox.DiskFull},
		"Log":       {func(r *Run) { r.spoil(sandbox.Errorf(sandbox.Exhausted, "no space left on device")) }, sandbox.Killed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := newServices(t)
				r := w.serve(t, sandbox.ServiceRequest{Restart: sandbox.RestartAlways})
				<-g.starts
				if _, err := r.WaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.fill(r)
				got, err := r.Wait(t.Context())
				if err != nil || got.Verdict.Code != c.want || got.Service.State != sandbox.ServiceEnded {
					t.Errorf("%+v, %+v, %v", got.Verdict, got.Service, err)
				}
				time.Sleep(time.Hour)
				if len(g.starts) != 0 {
					t.Error("the service started again")
				}
			})
		})
	}
}

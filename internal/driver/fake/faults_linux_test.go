package fake

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func open(t *testing.T, opts Options) *Driver {
	t.Helper()
	drivertest.CheckGoroutines(t)
	opts.Dir, opts.Stderr = t.TempDir(), os.Stderr
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := Leftovers(t, opts.Dir); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	return d
}

func spec() *driver.Spec { return harnesses[0].Spec() }

func TestCreateFails(t *testing.T) {
	fault := sandbox.Errorf(sandbox.Exhausted, "scripted")
	d := open(t, Options{OnCreate: func(context.Context, *driver.Spec) error { return fault }})
	s := spec()
	_, err := d.Create(t.Context(), s)
	if !errors.Is(err, fault) || sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("Create gives %v, want the scripted error", err)
	}
}

func TestCreateIsSlow(t *testing.T) {
	d := open(t, Options{OnCreate: func(ctx context.Context, _ *driver.Spec) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
			return nil
		}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Create(ctx, spec()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow Create whose context ends gives %v", err)
	}
	began := time.Now()
	drivertest.Launch(t, d, spec())
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("a slow Create took only %v", took)
	}
}

func TestDialFails(t *testing.T) {
	fail := false
	d := open(t, Options{OnDial: func(context.Context, string) error {
		if fail {
			return driver.ErrGone
		}
		return nil
	}})
	b := drivertest.Launch(t, d, spec())
	if err := b.Client.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	fail = true
	if _, err := b.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial gives %v, want the scripted error", err)
	}
}

func TestDestroyFails(t *testing.T) {
	fault, fail := errors.New("scripted"), true
	d := open(t, Options{OnDestroy: func(context.Context, string) error {
		if fail {
			return fault
		}
		return nil
	}})
	b := drivertest.Launch(t, d, spec())
	if err := b.Destroy(t.Context()); !errors.Is(err, fault) {
		t.Errorf("Destroy gives %v, want the scripted error", err)
	}
	b.Answers(t, "after a Destroy that failed")
	fail = false
}

func TestGuestDies(t *testing.T) {
	d := open(t, Options{Incidents: func(string) driver.Incidents { return driver.Incidents{MemoryKills: 3} }})
	b := drivertest.Launch(t, d, spec())
	b.MustSh(t, "setsid sleep 600 >/dev/null 2>&1 &")
	p, err := b.Start(t.Context(), drivertest.Sh("sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if in, ok, err := driver.ReadIncidents(t.Context(), b.Box); !ok || err != nil || !in.Alive || in.MemoryKills != 3 {
		t.Errorf("incidents before: %+v, %t, %v", in, ok, err)
	}
	if err := d.KillGuest(b.Ref()); err != nil {
		t.Fatal(err)
	}
	if r, err := drivertest.Collect(p, nil); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("the stream of a guest that died: %v, %v", r, err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		_, err := b.Dial(t.Context())
		in, ok, ierr := driver.ReadIncidents(t.Context(), b.Box)
		if driver.IsGone(err) && ok && !in.Alive && in.MemoryKills == 3 && len(Processes(t, d.opts.Dir, b.Ref())) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the guest died: Dial gives %v, incidents %+v, %v", err, in, ierr)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := d.KillGuest(b.Ref()); !driver.IsGone(err) {
		t.Errorf("KillGuest of a box that is gone: %v", err)
	}
}

// TestSupervisorDies kills the supervisor itself: the guest must not stay, nor
// what it started.
func TestSupervisorDies(t *testing.T) {
	d := open(t, Options{})
	b := drivertest.Launch(t, d, spec())
	b.MustSh(t, "setsid sleep 600 >/dev/null 2>&1 &")
	pids := Processes(t, d.opts.Dir, b.Ref())
	if len(pids) < 3 {
		t.Fatalf("a box has the processes %v, want supervisor, guest and sleep", pids)
	}
	sup, err := findSupervisor(b.Box.(pausing).dir)
	if err != nil {
		t.Fatal(err)
	}
	defer sup.close()
	sup.proc.signal(9)
	deadline := time.Now().Add(5 * time.Second)
	for len(about(t, d.opts.Dir)) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("left after the supervisor was killed: %v", about(t, d.opts.Dir))
		}
		time.Sleep(5 * time.Millisecond)
	}
	if _, err := d.Attach(t.Context(), b.Ref()); !driver.IsGone(err) {
		t.Errorf("Attach to a box whose supervisor was killed: %v", err)
	}
	if refs, err := d.List(t.Context()); err != nil || len(refs) != 1 {
		t.Errorf("List of a box of which only files are left: %q, %v", refs, err)
	}
}

func TestPretend(t *testing.T) {
	opts := Options{Pretend: []sandbox.ControlName{sandbox.ControlMemory}}
	s := spec()
	s.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU, sandbox.ControlProcesses, sandbox.ControlDisk}
	opts.OnReceipt = func(id string, r sandbox.Receipt) sandbox.Receipt {
		if id != s.ID {
			t.Errorf("OnReceipt of %q, want %q", id, s.ID)
		}
		r[0].Value = "changed"
		return r
	}
	b := drivertest.Launch(t, open(t, opts), s)
	r, err := b.Receipt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Control(sandbox.ControlMemory); !c.Enforced || c.Value != "512 MiB" {
		t.Errorf("a control that is pretended: %+v", c)
	}
	if c := r.Control(sandbox.ControlCPU); c.Enforced || c.Value != "changed" {
		t.Errorf("a control that is not pretended, and changed: %+v", c)
	}
}

// TestStubbornFiles has a box leave what its owner may not read or enter.
func TestStubbornFiles(t *testing.T) {
	d := open(t, Options{})
	b := drivertest.Launch(t, d, spec())
	b.MustSh(t, "mkdir -p a/b/c && touch a/b/c/d && chmod 000 a/b/c a/b a; ln -s / root")
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left := Leftovers(t, d.opts.Dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestLongPath(t *testing.T) {
	dir := t.TempDir() + "/a-directory-whose-name-is-so-long-that-a-socket-below-it-could-not-be-reached-by-its-path-in-the-usual-way"
	d, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := spec()
	b := drivertest.Launch(t, d, s)
	b.Answers(t, "below a long path")
	if err := b.Client.Signal(t.Context(), guestapi.ProcessSelector{PID: 1}, guestapi.SIGTERM); err == nil {
		t.Error("the guest signals a process that it did not start")
	}
}

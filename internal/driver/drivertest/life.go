package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testLife checks how boxes are created, listed, attached and destroyed.
func testLife(t *testing.T, s *suite) {
	t.Run("Create", func(t *testing.T) { lifeCreate(t, s) })
	t.Run("Fresh", func(t *testing.T) { lifeFresh(t, s) })
	t.Run("Dial", func(t *testing.T) { lifeDial(t, s) })
	t.Run("Destroy", func(t *testing.T) { lifeDestroy(t, s) })
	t.Run("DestroyAtOnce", func(t *testing.T) { lifeDestroyAtOnce(t, s) })
	t.Run("DestroyDuringRun", func(t *testing.T) { lifeDestroyDuringRun(t, s) })
	t.Run("Attach", func(t *testing.T) { lifeAttach(t, s) })
	t.Run("AttachNothing", func(t *testing.T) { lifeAttachNothing(t, s) })
	t.Run("Discard", func(t *testing.T) { lifeDiscard(t, s) })
	t.Run("Close", func(t *testing.T) { lifeClose(t, s) })
}

func lifeCreate(t *testing.T, s *suite) {
	st := s.open(t)
	spec := s.h.Spec()
	before := *spec
	ctx, cancel := context.WithCancel(t.Context())
	b, err := st.Create(ctx, spec)
	if err != nil {
		t.Fatalf("Create: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	cancel() // the context is of the call, not of the box
	box := NewBox(t, b)
	time.Sleep(100 * time.Millisecond)
	if err := box.Client.Health(step(t)); err != nil {
		t.Errorf("the guest must answer as soon as Create returns, and go on when Create's context ends: %v", err)
	}
	if spec.ID != before.ID || spec.Limits != before.Limits || spec.Image != before.Image || spec.Hostname != before.Hostname {
		t.Errorf("Create changed the spec: %+v, was %+v", spec, before)
	}
	if b.Ref() == "" || b.Ref() != b.Ref() {
		t.Errorf("Ref is %q, want a constant text", b.Ref())
	}
	refs, err := st.List(step(t))
	if err != nil || !slices.Equal(refs, []string{b.Ref()}) {
		t.Errorf("List: got %q, %v; want the one box %q", refs, err, b.Ref())
	}
	if s.h.Leftovers != nil && len(s.h.Leftovers(t, st.dir)) == 0 {
		t.Error("the harness finds nothing of a running box on this machine: its Leftovers is of no use")
	}
	if s.h.Processes != nil && len(s.h.Processes(t, st.dir, b.Ref())) == 0 {
		t.Error("the harness finds no process of a running box on this machine: its Processes is of no use")
	}
	if st.Info().Isolates {
		if name := box.MustSh(t, "uname -n"); name != spec.Hostname+"\n" {
			t.Errorf("the box calls itself %q, want Spec.Hostname %q", name, spec.Hostname)
		}
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	st.nothingLeft(t, "when Destroy returned")
}

// lifeFresh checks that a new box has no files of an earlier box.
func lifeFresh(t *testing.T, s *suite) {
	st := s.open(t)
	first := st.box(t)
	first.MustSh(t, "echo x > mine; echo x > /tmp/drivertest-first 2>/dev/null; :")
	defer first.MustRun(t, Sh("rm -f /tmp/drivertest-first")) // boxes that do not isolate share it
	second := st.box(t)
	if out := second.MustSh(t, "ls -A"); out != "" {
		t.Errorf("the working directory of a new box has %q", out)
	}
	if st.Info().Isolates {
		if r := second.MustRun(t, Sh("ls /tmp/drivertest-first")); r.End.Code() == 0 {
			t.Error("a new box sees a file of another box")
		}
	}
	if out := first.MustSh(t, "ls"); out != "mine\n" {
		t.Errorf("a file was lost while another box was created: %q", out)
	}
}

func lifeDial(t *testing.T, s *suite) {
	b := s.newBox(t)
	for range 20 {
		conn, err := b.Dial(step(t))
		if err != nil {
			t.Fatalf("Dial: %v", err)
		}
		if err := conn.SetDeadline(time.Now().Add(stepTime)); err != nil {
			t.Fatalf("streams must take deadlines: %v", err)
		}
		if _, err := fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: guest\r\n\r\n"); err != nil {
			t.Fatalf("write to a stream: %v", err)
		}
		buf := make([]byte, 12)
		if _, err := io.ReadFull(conn, buf); err != nil || !strings.HasPrefix(string(buf), "HTTP/1.1 2") {
			t.Fatalf("the guest must serve HTTP/1.1 on a fresh stream: got %q, %v", buf, err)
		}
		if err := conn.Close(); err != nil {
			t.Fatalf("close a stream: %v", err)
		}
	}
	// A blocked read must return when another goroutine closes the stream.
	conn, err := b.Dial(step(t))
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	time.Sleep(50 * time.Millisecond)
	conn.Close()
	select {
	case <-read:
	case <-time.After(settleTime):
		t.Error("a read of a stream that is closed does not return")
	}
	conns := make(chan error, 10)
	for range cap(conns) {
		go func() {
			conn, err := b.Dial(step(t))
			if err == nil {
				err = conn.Close()
			}
			conns <- err
		}()
	}
	for range cap(conns) {
		if err := <-conns; err != nil {
			t.Errorf("Dial, ten at once: %v", err)
		}
	}
}

// checkDestroyed checks the answers of a destroyed box.
func checkDestroyed(t testing.TB, st *site, b driver.Box) {
	t.Helper()
	if conn, err := b.Dial(step(t)); err == nil {
		conn.Close()
		t.Error("Dial of a destroyed box succeeds")
	} else if !driver.IsGone(err) || sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Dial of a destroyed box: got %v (kind %s), want it to wrap ErrGone", err, sandbox.KindOf(err))
	}
	if _, err := b.Receipt(step(t)); !driver.IsGone(err) {
		t.Errorf("Receipt of a destroyed box: got %v, want it to wrap ErrGone", err)
	}
	if _, err := st.Attach(step(t), b.Ref()); !driver.IsGone(err) {
		t.Errorf("Attach to a destroyed box: got %v, want it to wrap ErrGone", err)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy of a destroyed box: %v; it is idempotent", err)
	}
	if err := st.Discard(step(t), b.Ref()); err != nil {
		t.Errorf("Discard of a destroyed box: %v; it does nothing for what List does not return", err)
	}
}

func lifeDestroy(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	other := st.box(t)
	if err := b.Destroy(step(t)); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	checkDestroyed(t, st, b.Box)
	if refs, err := st.List(step(t)); err != nil || !slices.Equal(refs, []string{other.Ref()}) {
		t.Errorf("List after one of two was destroyed: %q, %v", refs, err)
	}
	other.Answers(t, "after another box was destroyed")
}

func lifeDestroyAtOnce(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	b.MustSh(t, "setsid sleep 600 >/dev/null 2>&1 & setsid sleep 600 >/dev/null 2>&1 &")
	twin, err := st.Attach(step(t), b.Ref())
	if err != nil {
		t.Fatalf("Attach to a box whose creator lives: %v", err)
	}
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			if i%2 == 0 {
				errs <- twin.Destroy(step(t))
			} else {
				errs <- b.Destroy(step(t))
			}
			if s.h.Processes != nil && len(s.h.Processes(t, st.dir, b.Ref())) > 0 {
				t.Error("Destroy returned while processes of the box ran; that holds also while another Destroy is at work")
			}
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("Destroy, several at once: %v", err)
		}
	}
	st.nothingLeft(t, "after several Destroys at once")
	checkDestroyed(t, st, b.Box)
	checkDestroyed(t, st, twin)
}

// lifeDestroyDuringRun destroys a box during runs, uploads and watches.
func lifeDestroyDuringRun(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	dir := b.Dir(t)
	var wg sync.WaitGroup
	busy := func(what string, run func() error) {
		wg.Go(func() {
			if err := run(); err == nil || sandbox.KindOf(err) == sandbox.Internal {
				t.Errorf("%s, when its box is destroyed: got %v (kind %s), want kind %s", what, err, sandbox.KindOf(err), sandbox.Unavailable)
			}
		})
	}
	busy("a silent run", func() error { return second(b.Run(step(t), Sh("sleep 600"))) })
	busy("a run that writes", func() error {
		return second(b.Run(step(t), Cmd{Shell: "yes", OnData: discard}))
	})
	busy("a run that resists", func() error {
		return second(b.Run(step(t), Sh("trap '' TERM HUP INT; setsid sleep 600; sleep 600")))
	})
	busy("a run with input", func() error {
		return second(b.Run(step(t), Cmd{Argv: []string{"cat"}, Open: true}))
	})
	busy("a write", func() error {
		r, w := newEndless()
		defer w()
		return second(b.Client.Write(step(t), dir+"/endless", r, writeOptions))
	})
	busy("a watch", func() error {
		w, err := b.Client.Watch(step(t), dir, true, asUser)
		for err == nil {
			_, err = w.Next()
		}
		return err
	})
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy during runs: %v", err)
	}
	took := time.Since(began)
	st.nothingLeft(t, "when Destroy during runs returned")
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(settleTime):
		t.Errorf("%v after Destroy, calls to the box have not returned", settleTime)
	}
	t.Logf("Destroy during runs took %v", took.Round(time.Millisecond))
	if took > settleTime {
		t.Errorf("Destroy during runs took %v", took)
	}
	<-ended
}

func lifeAttach(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	b.MustSh(t, "echo kept > file")
	for name, d := range map[string]driver.Driver{"the same driver": st.Driver, "another driver": s.openDir(t, st.dir)} {
		a, err := d.Attach(step(t), b.Ref())
		if err != nil {
			t.Errorf("Attach by %s to a box whose creator lives: %v", name, err)
			continue
		}
		if a.Ref() != b.Ref() {
			t.Errorf("Attach to %q gives a box %q", b.Ref(), a.Ref())
		}
		if out := NewBox(t, a).MustSh(t, "cat file"); out != "kept\n" {
			t.Errorf("Attach by %s: the file has %q", name, out)
		}
		x, err := b.Receipt(step(t))
		if err != nil {
			t.Fatalf("Receipt: %v", err)
		}
		if y, err := a.Receipt(step(t)); err != nil || !slices.Equal(x, y) {
			t.Errorf("Receipt by %s: %+v, %v; want that of the creator, %+v", name, y, err, x)
		}
		if refs, err := d.List(step(t)); err != nil || !slices.Equal(refs, []string{b.Ref()}) {
			t.Errorf("List by %s: %q, %v", name, refs, err)
		}
	}
	// A box that one driver destroys is gone for all.
	a, err := s.openDir(t, st.dir).Attach(step(t), b.Ref())
	if err != nil {
		t.Fatalf("Attach: %v", err)
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Fatalf("Destroy by another driver: %v", err)
	}
	st.nothingLeft(t, "after Destroy by another driver")
	checkDestroyed(t, st, b.Box)
	if err := b.Client.Health(step(t)); err == nil {
		t.Error("the guest of a destroyed box answers")
	}
}

// badRefs are references that no driver returned.
func badRefs() map[string]string {
	return map[string]string{
		"a box that never was": sandbox.NewID(), "nothing": "", "text": "no-such-box", "a path": "../../../etc",
		"an absolute path": "/etc", "a dot": ".", "two dots": "..", "a line": "a\nb", "bytes": "\xff\x00", "an option": "--all",
		"long": strings.Repeat("x", 10_000), "a wildcard": "*",
	}
}

func lifeAttachNothing(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	for name, ref := range badRefs() {
		if _, err := st.Attach(step(t), ref); !driver.IsGone(err) {
			t.Errorf("Attach to %s: got %v, want it to wrap ErrGone", name, err)
		}
		if err := st.Discard(step(t), ref); err != nil {
			t.Errorf("Discard of %s: got %v; it does nothing for what List does not return", name, err)
		}
	}
	b.Answers(t, "after Attach and Discard of boxes that are not there")
}

func lifeDiscard(t *testing.T, s *suite) {
	st := s.open(t)
	b, neighbour := st.box(t), st.box(t)
	b.MustSh(t, "setsid sleep 600 >/dev/null 2>&1 &")
	if err := st.Discard(step(t), b.Ref()); err != nil {
		t.Fatalf("Discard: %v", err)
	}
	if refs, err := st.List(step(t)); err != nil || !slices.Equal(refs, []string{neighbour.Ref()}) {
		t.Errorf("List after Discard: %q, %v; want only the other box", refs, err)
	}
	checkDestroyed(t, st, b.Box)
	neighbour.Answers(t, "after Discard of another box")
}

func lifeClose(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Detach {
		t.Skip("the driver declares no detached boxes")
	}
	d, err := s.h.Open(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := s.h.Spec()
	spec.Detached = true
	b, err := d.Create(step(t), spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	a, err := st.Attach(step(t), b.Ref())
	if err != nil {
		t.Fatalf("Attach to a detached box after its creator's Close: %v", err)
	}
	NewBox(t, a).Answers(t, "after the creator's Close")
	if err := a.Destroy(step(t)); err != nil {
		t.Errorf("Destroy: %v", err)
	}
}

// testRefuse checks that a driver refuses unsupported specs before it starts any
// work.
func testRefuse(t *testing.T, s *suite) {
	st := s.open(t)
	cases := map[string]func(*driver.Spec){
		"an image that is not there": func(s *driver.Spec) { s.Image = "localhost:1/no/such-image:ever" },
		"no image":                   func(s *driver.Spec) { s.Image = "" },
		"a path as image":            func(s *driver.Spec) { s.Image = "../../../../etc" },
		"a network it does not know": func(s *driver.Spec) { s.Network = "everything" },
	}
	if !st.Info().Features.Network {
		cases["a network, which it does not declare"] = func(s *driver.Spec) { s.Network = sandbox.NetworkInternet }
	}
	if !st.Info().Features.Detach {
		cases["a detached box, which it does not declare"] = func(s *driver.Spec) { s.Detached = true }
	}
	for _, name := range s.h.Spec().AllowUnenforced {
		cases[fmt.Sprintf("a limit of %s, which it cannot enforce", name)] = func(s *driver.Spec) {
			s.AllowUnenforced = slices.DeleteFunc(slices.Clone(s.AllowUnenforced), func(n sandbox.ControlName) bool { return n == name })
		}
	}
	for name, change := range s.h.Refused {
		cases[name] = change
	}
	for _, name := range sortedKeys(cases) {
		spec := s.h.Spec()
		cases[name](spec)
		b, err := st.Create(step(t), spec)
		if err == nil {
			t.Errorf("Create with %s succeeds, want it refused", name)
			if err := b.Destroy(step(t)); err != nil {
				t.Error(err)
			}
			continue
		}
		switch kind := sandbox.KindOf(err); {
		case kind == sandbox.Unsupported, kind == sandbox.Invalid, kind == sandbox.NotFound:
		case kind == sandbox.Unavailable && st.Info().Features.Images && strings.Contains(name, "image"):
			// The registry does not answer, so the image may exist.
		default:
			t.Errorf("Create with %s: kind %s (%v), want %s, %s or %s", name, sandbox.KindOf(err), err, sandbox.Unsupported, sandbox.Invalid, sandbox.NotFound)
		}
		if sandbox.HintOf(err) == "" {
			t.Errorf("Create with %s: %v: there is no hint, want one that names the remedy", name, err)
		}
		st.nothingLeft(t, "after Create with "+name+" was refused")
	}
}

// testCancel ends contexts at every step.
func testCancel(t *testing.T, s *suite) {
	t.Run("Create", func(t *testing.T) { cancelCreate(t, s) })
	t.Run("Box", func(t *testing.T) { cancelBox(t, s) })
	t.Run("Destroy", func(t *testing.T) { cancelDestroy(t, s) })
}

func cancelCreate(t *testing.T, s *suite) {
	st := s.open(t)
	created, refused := 0, 0
	for delay := time.Duration(0); created < 3 && delay < 20*time.Second; delay = delay*5/4 + time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		b, err := st.Create(ctx, s.h.Spec())
		cancel()
		if err == nil {
			created++
			if err := b.Destroy(step(t)); err != nil {
				t.Errorf("Destroy: %v", err)
			}
		} else {
			refused++
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Create, whose context ended after %v: got %v, want it to wrap the context's error", delay, err)
			}
		}
		st.nothingLeft(t, fmt.Sprintf("after Create whose context ended after %v (error: %v)", delay, err))
		if t.Failed() {
			return
		}
	}
	t.Logf("the context ended in %d Creates", refused)
	if created == 0 {
		t.Error("no Create ended in time")
	}
	if refused == 0 {
		t.Error("Create with a context that has ended succeeds")
	}
}

func cancelBox(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if conn, err := b.Dial(ended); err == nil {
		conn.Close()
		t.Error("Dial with a context that has ended succeeds")
	} else if driver.IsGone(err) {
		t.Errorf("Dial with a context that has ended says that the box is gone: %v", err)
	}
	// These calls may answer from cached state. They must not hang or do harm.
	if _, err := b.Receipt(ended); driver.IsGone(err) {
		t.Errorf("Receipt with a context that has ended says that the box is gone: %v", err)
	}
	if _, err := st.Attach(ended, b.Ref()); driver.IsGone(err) {
		t.Errorf("Attach with a context that has ended says that the box is gone: %v", err)
	}
	st.List(ended)  //nolint:errcheck // any answer will do
	st.Probe(ended) //nolint:errcheck // any answer will do
	if took := time.Since(began); took > settleTime {
		t.Errorf("calls with a context that has ended took %v", took)
	}
	for _, delay := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), delay)
			if conn, err := b.Dial(ctx); err == nil {
				conn.Close()
			}
			b.Run(ctx, Sh("sleep 0.03; echo x"))         //nolint:errcheck // it ends early
			b.Client.ListDir(ctx, "/usr/bin", 1, asUser) //nolint:errcheck // it ends early
			cancel()
		}
	}
	b.Answers(t, "after calls that were cancelled")
	eventually(t, "processes of cancelled calls are left", func() bool {
		ps, err := b.Client.Processes(step(t))
		return err == nil && len(ps) == 0
	})
}

func cancelDestroy(t *testing.T, s *suite) {
	st := s.open(t)
	for _, delay := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		b := st.box(t)
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		err := b.Destroy(ctx)
		cancel()
		if err == nil {
			st.nothingLeft(t, "after Destroy, whose context ended, returned nil")
		}
		if err := b.Destroy(step(t)); err != nil {
			t.Errorf("Destroy after one whose context ended: %v", err)
		}
		st.nothingLeft(t, "after the second Destroy")
	}
}

// testMany checks concurrent runs and concurrent boxes.
func testMany(t *testing.T, s *suite) {
	t.Run("Runs", func(t *testing.T) { manyRuns(t, s) })
	t.Run("Boxes", func(t *testing.T) { manyBoxes(t, s) })
}

package drivertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pauseTicks bounds the CPU time of a paused box during pauseTime, in clock
// ticks of 10 ms. The tolerance is for work in progress at the pause.
const (
	pauseTicks = 1
	pauseTime  = time.Second
)

// testPause checks that paused boxes take no CPU time, and that drivers without
// the feature refuse to pause.
func testPause(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	if !st.Info().Features.Pause {
		ok, err := driver.Pause(step(t), b.Box)
		if ok || (err != nil && sandbox.KindOf(err) != sandbox.Unsupported) {
			t.Errorf("Pause is not declared in Info: want it refused, got %t, %v", ok, err)
		}
		b.Answers(t, "after a pause that was refused")
		return
	}
	t.Run("NoCPU", func(t *testing.T) { pauseNoCPU(t, st, b) })
	t.Run("Again", func(t *testing.T) { pauseAgain(t, b) })
	t.Run("Attached", func(t *testing.T) { pauseAttached(t, st, b) })
	t.Run("Destroy", func(t *testing.T) { pauseDestroy(t, st) })
}

func pause(t testing.TB, b *Box) {
	t.Helper()
	if ok, err := driver.Pause(step(t), b.Box); !ok || err != nil {
		t.Fatalf("Pause, which Info declares: %t, %v", ok, err)
	}
}

func resume(t testing.TB, b *Box) {
	t.Helper()
	if err := driver.Resume(step(t), b.Box); err != nil {
		t.Fatalf("Resume: %v", err)
	}
}

func pauseNoCPU(t *testing.T, st *site, b *Box) {
	// One program computes and one writes, on open streams.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy, err := b.Start(ctx, Sh("while :; do :; done"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	speaks, _ := b.startReady(t, Sh("i=0; while [ $i -lt 2000 ]; do echo $i; sleep 0.01; i=$((i+1)); done"))
	defer speaks.Close()
	time.Sleep(300 * time.Millisecond)
	pause(t, b)
	if st.s.h.Processes != nil {
		before := st.boxTicks(t, b)
		if before == 0 {
			t.Error("the processes of a box that computed have taken no processor time: the harness's Processes is of no use")
		}
		time.Sleep(pauseTime)
		if took := st.boxTicks(t, b) - before; took > pauseTicks {
			t.Errorf("a paused box took %d0 ms of processor time in %v, want none", took, pauseTime)
		}
	}
	short, cancelShort := context.WithTimeout(t.Context(), 200*time.Millisecond)
	if err := b.Client.Health(short); err == nil {
		t.Error("the guest of a paused box answers")
	}
	cancelShort()
	began := time.Now()
	resume(t, b)
	b.Answers(t, "after Resume")
	t.Logf("resumed and answered within %v", time.Since(began).Round(100*time.Microsecond))
	// Streams stayed open: output continues.
	for range 20 {
		if st.Info().Features.ColdPause {
			break // a cold pause ends the streams
		}
		ev, err := speaks.Next()
		if err != nil || ev.Data == nil {
			t.Fatalf("a stream that was open over a pause: %+v, %v", ev, err)
		}
	}
	if st.s.h.Processes != nil {
		before := st.boxTicks(t, b)
		eventually(t, "a resumed box that computes takes no processor time: it did not go on", func() bool {
			return st.boxTicks(t, b) > before
		})
	}
	b.MustRoot(t, "kill -9 "+pidText(busy.PID())+" "+pidText(speaks.PID()))
}

func pauseAgain(t *testing.T, b *Box) {
	resume(t, b) // a resume of a running box does nothing
	b.Answers(t, "after Resume of a running box")
	for range 3 {
		pause(t, b)
		pause(t, b)
		resume(t, b)
		resume(t, b)
	}
	b.Answers(t, "after pausing and resuming again and again")
	if out := b.MustSh(t, "sleep 0.1; echo slept"); !strings.Contains(out, "slept") {
		t.Errorf("timers after a pause: %q", out)
	}
}

// pauseAttached pauses by one Box and resumes by another.
func pauseAttached(t *testing.T, st *site, b *Box) {
	pause(t, b)
	a, err := st.s.openDir(t, st.dir).Attach(step(t), b.Ref())
	if err != nil {
		resume(t, b)
		t.Fatalf("Attach to a paused box: %v", err)
	}
	if _, err := a.Receipt(step(t)); err != nil {
		t.Errorf("Receipt of a paused box: %v", err)
	}
	if err := driver.Resume(step(t), a); err != nil {
		t.Errorf("Resume by another Box: %v", err)
	}
	b.Answers(t, "after Resume by another Box")
}

func pauseDestroy(t *testing.T, st *site) {
	b := st.box(t)
	b.MustSh(t, "setsid sleep 600 >/dev/null 2>&1 &")
	pause(t, b)
	began := time.Now()
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy of a paused box: %v", err)
	}
	t.Logf("Destroy of a paused box took %v", time.Since(began).Round(time.Millisecond))
	if st.s.h.Processes != nil {
		if pids := st.s.h.Processes(t, st.dir, b.Ref()); len(pids) > 0 {
			t.Errorf("Destroy of a paused box left processes %v", pids)
		}
	}
	checkDestroyed(t, st, b.Box)
}

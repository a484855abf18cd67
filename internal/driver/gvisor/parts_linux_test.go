package gvisor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestPlan(t *testing.T) {
	m := &maker{} // no control groups
	spec := func(cpus float64) *driver.Spec {
		l := sandbox.DefaultLimits()
		l.CPUs = cpus
		return &driver.Spec{Limits: l}
	}
	p, err := m.plan(spec(1))
	if err != nil || len(p.cpuSet) != 1 || !p.watchMemory || p.group {
		t.Errorf("plan of 1 CPU = %+v, %v; want one processor and watched memory", p, err)
	}
	if _, err := m.plan(spec(0.5)); !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("plan of half a CPU: %v with hint %q; want it refused with a hint", err, sandbox.HintOf(err))
	}
	allowed := spec(0.5)
	allowed.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU}
	if p, err := m.plan(allowed); err != nil || p.cpuSet != nil {
		t.Errorf("plan of half a CPU, allowed unenforced = %+v, %v", p, err)
	}
}

func TestOnceMade(t *testing.T) {
	calls := 0
	it := new(int)
	made := onceMade(func() (*int, error) {
		if calls++; calls == 1 {
			return nil, errors.New("not yet")
		}
		return it, nil
	})
	if _, err := made(); err == nil {
		t.Error("the error was lost")
	}
	for range 2 {
		if got, err := made(); got != it || err != nil {
			t.Errorf("made() = %v, %v after it can be made", got, err)
		}
	}
	if calls != 2 {
		t.Errorf("made %d times", calls)
	}
}

// TestPauseObeysContext pauses and resumes a box while another operation has it
// awake, as a receipt does that the guest does not answer.
func TestPauseObeysContext(t *testing.T) {
	b := (&Driver{boxes: map[*box]bool{}}).newBox("box")
	defer b.release()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(context.Context) error{
		"pause":   b.Pause,
		"resume":  b.Resume,
		"receipt": func(ctx context.Context) error { _, err := b.Receipt(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := f(ctx); sandbox.KindOf(err) != sandbox.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	b.asleep.end()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Error(err)
	}
}

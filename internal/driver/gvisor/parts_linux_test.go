package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSandboxArgs(t *testing.T) {
	b := &madeBox{record: message.Record{Spec: driver.Spec{Limits: sandbox.Limits{CPUs: 2.5, MemoryBytes: 96 << 20}}}}
	data, err := json.Marshal(b.bundle(2))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	args := []string{"runsc-sandbox", "--root=/x", "boot", fmt.Sprintf("--spec-fd=%d", f.Fd()), "--total-memory", "999", "sbx"}
	got := sandboxArgs(args, openedSpec(args))
	if i := slices.Index(got, "--total-memory"); got[i+1] != fmt.Sprint(96<<20) {
		t.Errorf("memory in %q is not the limit", got)
	}
	if i := slices.Index(got, "--cpu-num"); i < 0 || got[i+1] != "3" {
		t.Errorf("CPUs in %q are not the limit, rounded up", got)
	}
	if slices.Contains(args, "--cpu-num") {
		t.Error("the caller's arguments were changed")
	}
	// The offset must stay: gVisor reads the file next.
	if at, err := f.Seek(0, 1); err != nil || at != int64(len(data)) {
		t.Errorf("offset is %d, %v; want %d", at, err, len(data))
	}
	for _, bad := range [][]string{
		{"runsc-sandbox", "boot"},
		{"runsc-sandbox", "boot", "--spec-fd=-1"},
		{"runsc-sandbox", "boot", "--spec-fd=99999"},
	} {
		if got := openedSpec(bad); got != nil {
			t.Errorf("openedSpec(%q) = %v, want nil", bad, got)
		}
	}
}

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

func TestDonated(t *testing.T) {
	args := []string{
		"runsc-sandbox", "--root=/x", "--log-fd=3", "boot", "--io-fds=4,5", "--stdio-fds=[6 7 8]",
		"--pass-fd=9:3", "--start-sync-fd=-1", "--fdlimit=100", "--spec-fd=10", "sbx_fd=12",
	}
	got := slices.Sorted(maps.Keys(donated(args)))
	if want := []int{1, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("donated(%q) = %v, want %v", args, got, want)
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

package engine

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestTenThousandSandboxes measures one server with 10,000 sandboxes: memory, sweep, run
// and start. The boxes are those of a driver without processes, so the figures are the
// server's own. No figure decides whether the test passes. It takes a while, so it needs
// GLOVEBOX_FIGURES.
func TestTenThousandSandboxes(t *testing.T) {
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	const most, principals, runs = 10_000, 100, 500
	w, dir := newWorld(), t.TempDir()
	open := func() *Engine {
		return openWorld(t, w, dir, func(o *Options) { o.Detached, o.MaxSandboxes = true, most })
	}
	owner := func(i int) sandbox.Principal { return sandbox.Principal(fmt.Sprintf("p%d", i%principals)) }
	e := open()
	empty := memoryInUse()
	var ids [most]string
	begin := 0
	for _, size := range []int{100, 1000, most} {
		took := inTurn(4, size-begin, func(i int) {
			s, err := e.Create(t.Context(), owner(begin+i), sandbox.CreateRequest{})
			if err != nil {
				t.Error(err)
			}
			ids[begin+i] = s.ID
		})
		t.Logf("%d sandboxes: created in %v / %v", size, middle(took), late(took))
		t.Logf("%d sandboxes: %.1f MiB more memory in use, %.0f MiB resident, %d goroutines", size, float64(memoryInUse()-empty)/(1<<20), resident(t), runtime.NumGoroutine())
		const sweeps = 5
		before := cpuTime(t)
		swept := inTurn(1, sweeps, func(int) {
			if err := e.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Logf("%d sandboxes: a sweep in %v, with %v of CPU time", size, middle(swept), (cpuTime(t)-before)/sweeps)
		took = inTurn(4, runs, func(i int) {
			n := i * 7 % size
			ctx, p := context.Background(), owner(n)
			r, err := e.Start(ctx, p, sandbox.RunRequest{SandboxID: ids[n], Argv: []string{"print", "42\n"}})
			if err == nil {
				_, err = e.Wait(ctx, p, r.ID)
			}
			if err != nil {
				t.Error(err)
			}
		})
		t.Logf("%d sandboxes: a run in %v / %v", size, middle(took), late(took))
		begin = size
	}
	// All sandboxes outlive the process, and the next one takes them over.
	e.crash(t)
	began, before := time.Now(), cpuTime(t)
	e = open()
	opened := time.Since(began)
	if err := e.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("start: the engine is there after %v, and all %d sandboxes are taken over after %v, with %v of CPU time", opened, most, time.Since(began), cpuTime(t)-before)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sandboxes) != most {
		t.Errorf("%d sandboxes after the start, want %d", len(e.sandboxes), most)
	}
}

// memoryInUse returns the bytes of heap and stacks that are in use after a collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// resident returns the MiB of memory that this process occupies, after the Go runtime has
// returned what it can.
func resident(t *testing.T) float64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var all, pages int64
	if _, err := fmt.Sscan(string(text), &all, &pages); err != nil {
		t.Fatal(err)
	}
	return float64(pages*int64(os.Getpagesize())) / (1 << 20)
}

// cpuTime returns the CPU time of this process, with that of its garbage collector.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Round(time.Millisecond)
}

// inTurn has callers call do with the numbers below n, each caller one after the other.
// It returns how long each call took, sorted.
func inTurn(callers, n int, do func(i int)) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < n; i += callers {
				began := time.Now()
				do(i)
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

func middle(took []time.Duration) time.Duration {
	return took[len(took)/2].Round(10 * time.Microsecond)
}
func late(took []time.Duration) time.Duration {
	return took[len(took)*99/100].Round(10 * time.Microsecond)
}

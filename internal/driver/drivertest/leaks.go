package drivertest

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// settleTime is the timeout for work in progress to finish.
const settleTime = 5 * time.Second * raceFactor

// CheckGoroutines fails the test if new goroutines still run at its end, after
// all its later cleanups. Goroutines with a known text in their stacks do not
// count, nor do goroutines of package testing. It must not be used in parallel
// tests.
func CheckGoroutines(t testing.TB, known ...string) {
	t.Helper()
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[g.id] = true
	}
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(settleTime); ; time.Sleep(20 * time.Millisecond) {
			left = left[:0]
			for _, g := range goroutines() {
				if !before[g.id] && !g.known(known) {
					left = append(left, g.stack)
				}
			}
			if len(left) == 0 || time.Now().After(deadline) {
				break
			}
		}
		if len(left) > 0 && !t.Failed() {
			t.Errorf("%d goroutines are left at the end of the test:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

type goroutine struct{ id, stack string }

func (g goroutine) known(texts []string) bool {
	for _, own := range []string{"testing.(*T).Run(", "testing.runTests(", "testing.tRunner(", "os/signal.loop(", "os/signal.signal_recv("} {
		if strings.Contains(g.stack, own) {
			return true
		}
	}
	for _, text := range texts {
		if strings.Contains(g.stack, text) {
			return true
		}
	}
	return false
}

// goroutines returns all goroutines except the caller's.
func goroutines() []goroutine {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var all []goroutine
	for i, stack := range strings.Split(string(buf), "\n\n") {
		id, ok := strings.CutPrefix(stack, "goroutine ")
		if i == 0 || !ok {
			continue // the first is the caller's
		}
		id, _, _ = strings.Cut(id, " ")
		all = append(all, goroutine{id, stack})
	}
	return all
}

// A heapWatch records the peak of this process's heap in use.
type heapWatch struct {
	base uint64
	peak atomic.Uint64
	stop chan struct{}
	done chan struct{}
}

// watchHeap starts a heapWatch.
func watchHeap() *heapWatch {
	runtime.GC()
	h := &heapWatch{base: heapInUse(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for {
			h.look()
			select {
			case <-h.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return h
}

// collectAt is the heap growth, in bytes, from which a measurement first
// collects garbage. On a busy machine the garbage collector runs late, and only
// live memory counts.
const collectAt = 16 << 20

// look measures the heap.
func (h *heapWatch) look() {
	n := heapInUse()
	if n > h.base+collectAt {
		runtime.GC()
		n = heapInUse()
	}
	h.peak.Store(max(h.peak.Load(), n))
}

// check ends the watch. It fails the test if the heap grew by more than bound
// bytes.
func (h *heapWatch) check(t testing.TB, what string, bound uint64) {
	t.Helper()
	close(h.stop)
	<-h.done
	// Memory that is live now counts, even if the watch missed its allocation.
	h.look()
	grew := max(h.peak.Load(), h.base) - h.base
	t.Logf("%s: the heap of this process grew by %d KiB at most", what, grew>>10)
	if grew > bound {
		t.Errorf("%s: the heap of this process grew by %d KiB, want at most %d: something is held in memory that should stream",
			what, grew>>10, bound>>10)
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuTicks returns the CPU time of a process on this machine, in clock ticks of
// 10 ms. It returns 0 if the process has ended.
func cpuTicks(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain any character.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		t.Fatalf("stat of process %d: %q", pid, b)
	}
	var sum int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatalf("stat of process %d: %v", pid, err)
		}
		sum += n
	}
	return sum
}

// boxTicks returns the CPU time of all of a box's processes, in clock ticks.
func (st *site) boxTicks(t testing.TB, b *Box) int64 {
	t.Helper()
	var sum int64
	for _, pid := range st.s.h.Processes(t, st.dir, b.Ref()) {
		sum += cpuTicks(t, pid)
	}
	return sum
}

package drivertest

import (
	"strings"
	"testing"
	"time"
)

// The suite's own instruments must be able to fail.

func TestLineCheck(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		n      int
		ok     bool
	}{
		"whole":       {[]string{"1\n2\n3\n"}, 3, true},
		"in pieces":   {[]string{"1", "\n2", "\n", "3\n"}, 3, true},
		"lost":        {[]string{"1\n3\n"}, 2, false},
		"lost inside": {[]string{"1\n2", "2\n3\n"}, 3, false},
		"swapped":     {[]string{"2\n1\n"}, 2, false},
		"short":       {[]string{"1\n2\n"}, 3, false},
		"cut":         {[]string{"1\n2"}, 2, false},
		"no lines":    {[]string{strings.Repeat("1", 1000)}, 1, false},
	} {
		var lc lineCheck
		for _, p := range c.pieces {
			lc.write([]byte(p))
		}
		r := &recorder{TB: t}
		lc.check(r, name, c.n)
		if r.failed == c.ok {
			t.Errorf("%s: fails: %t", name, r.failed)
		}
	}
}

func TestCheckGoroutines(t *testing.T) {
	stop := make(chan struct{})
	r := &recorder{TB: t}
	CheckGoroutines(r, "someFunctionThatIsNot")
	go func() { <-stop }()
	r.cleanup()
	if !r.failed {
		t.Error("a goroutine that was left is not found")
	}
	close(stop)

	r = &recorder{TB: t}
	CheckGoroutines(r)
	go func() { time.Sleep(50 * time.Millisecond) }()
	r.cleanup()
	if r.failed {
		t.Error("a goroutine that ends soon is said to be left")
	}
}

func TestWatchHeap(t *testing.T) {
	r := &recorder{TB: t}
	h := watchHeap()
	held := make([]byte, 64<<20)
	time.Sleep(100 * time.Millisecond)
	held[0] = 1
	h.check(r, "holding 64 MiB", 32<<20)
	if !r.failed || held[0] != 1 {
		t.Error("64 MiB on the heap are not found")
	}
}

// recorder takes the failures of what is tested.
type recorder struct {
	testing.TB
	failed   bool
	cleanups []func()
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }

func (r *recorder) cleanup() {
	for _, f := range r.cleanups {
		f()
	}
}

package fair_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func try(t *testing.T, p *fair.Pool, who sandbox.Principal, units int64) *fair.Hold {
	t.Helper()
	h, err := p.Try(fair.Request{Principal: who, Units: units})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func refused(t *testing.T, p *fair.Pool, who sandbox.Principal, units int64) {
	t.Helper()
	h, err := p.Try(fair.Request{Principal: who, Units: units})
	if err == nil {
		t.Fatalf("%s got %d more, with %d", who, units, p.Held(who))
	}
	if !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" || sandbox.RetryAfterOf(err) == 0 || h != nil {
		t.Errorf("%v, hint %q, retry after %v", err, sandbox.HintOf(err), sandbox.RetryAfterOf(err))
	}
}

// empty checks that nothing is counted any more.
func empty(t *testing.T, p *fair.Pool) {
	t.Helper()
	if s := p.Stats(); s.Used != 0 || s.Principals != 0 || s.Waiting != 0 || s.MostHeld != 0 {
		t.Errorf("something is left: %+v", s)
	}
}

// TestLeavesRoom has principals take all they can: each leaves something to the
// next.
func TestLeavesRoom(t *testing.T) {
	p := fair.New(fair.Options{Name: "bytes", Total: 64})
	var holds []*fair.Hold
	for i, want := range []int64{32, 16, 8, 4} {
		who := sandbox.Principal(fmt.Sprint(i))
		for {
			h, err := p.Try(fair.Request{Principal: who, Units: 1})
			if err != nil {
				break
			}
			holds = append(holds, h)
		}
		if got := p.Held(who); got != want {
			t.Errorf("principal %d holds %d, want %d", i, got, want)
		}
	}
	for _, h := range holds {
		h.Release()
		h.Release() // a second time is nothing
	}
	empty(t, p)
}

// TestSmall has small requests pass while large ones use all they may.
func TestSmall(t *testing.T) {
	p := fair.New(fair.Options{Name: "bytes", Total: 100, Small: 2, Reserve: 20})
	large := try(t, p, "a", 40)
	refused(t, p, "a", 41)
	other := try(t, p, "b", 40)
	refused(t, p, "c", 3)
	small := []*fair.Hold{try(t, p, "a", 2), try(t, p, "b", 2), try(t, p, "c", 2)}
	if _, err := p.Try(fair.Request{Principal: "d", Units: 81}); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("more than large requests can ever have: %v", err)
	}
	for _, h := range append(small, large, other) {
		h.Release()
	}
	empty(t, p)
}

func TestResize(t *testing.T) {
	p := fair.New(fair.Options{Name: "bytes", Total: 100, Small: 2, Reserve: 20})
	h := try(t, p, "a", 1)
	for _, n := range []int64{2, 30, 40, 10, 1, 0} {
		if err := h.Resize(n); err != nil {
			t.Fatal(err)
		}
		if got, want := h.Units(), max(1, n); got != want || p.Held("a") != want {
			t.Errorf("%d units, held %d, want %d", got, p.Held("a"), want)
		}
	}
	other := try(t, p, "b", 60)
	if err := h.Resize(30); !errors.Is(err, sandbox.Exhausted) || h.Units() != 1 {
		t.Errorf("%v, %d units", err, h.Units())
	}
	h.Release()
	if err := h.Resize(5); err != nil || h.Units() != 0 {
		t.Errorf("of a hold that was released: %v, %d units", err, h.Units())
	}
	other.Release()
	empty(t, p)
}

// TestOrder has requests wait: small ones are granted first, then those of the
// principals that hold least, then the oldest; a large one is not passed for ever.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(fair.Options{Name: "bytes", Total: 100, Small: 2, Reserve: 4})
		all := try(t, p, "x", 96)
		some := []*fair.Hold{try(t, p, "y", 2), try(t, p, "z", 2)} // the reserve
		var mu sync.Mutex
		waited := map[string]time.Duration{}
		var begun time.Time
		var wg sync.WaitGroup
		for _, r := range []struct {
			name  string
			who   sandbox.Principal
			units int64
		}{{"has some", "z", 10}, {"oldest", "y", 10}, {"next", "a", 60}, {"does not fit", "b", 40}, {"small", "x", 2}} {
			wg.Go(func() {
				h, err := p.Acquire(t.Context(), fair.Request{Principal: r.who, Units: r.units})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				waited[r.name] = time.Since(begun)
				mu.Unlock()
				time.Sleep(time.Second)
				h.Release()
			})
			synctest.Wait()
		}
		begun = time.Now()
		some[0].Release() // "y" holds nothing from now on
		all.Release()
		wg.Wait()
		want := map[string]time.Duration{"small": 0, "oldest": 0, "next": 0, "does not fit": time.Second, "has some": time.Second}
		if diff := cmp.Diff(want, waited); diff != "" {
			t.Errorf("waited (-want +got):\n%s", diff)
		}
		some[1].Release()
		empty(t, p)
	})
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(fair.Options{Name: "pulls", Total: 2, RetryAfter: 7 * time.Second, MaxWaiting: 1})
		first, second := try(t, p, "a", 1), try(t, p, "b", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error)
		go func() {
			_, err := p.Acquire(ctx, fair.Request{Principal: "c", Units: 1})
			done <- err
		}()
		synctest.Wait()
		if _, err := p.Acquire(ctx, fair.Request{Principal: "c", Units: 1}); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a second that waits: %v", err)
		}
		err := <-done
		if !errors.Is(err, sandbox.Exhausted) || !errors.Is(err, context.DeadlineExceeded) || sandbox.RetryAfterOf(err) != 7*time.Second {
			t.Errorf("%v, retry after %v", err, sandbox.RetryAfterOf(err))
		}
		first.Release()
		second.Release()
		empty(t, p)
	})
}

// item is a hold that can be evicted.
type item struct {
	*fair.Hold
	busy, gone bool
}

func hold(t *testing.T, p *fair.Pool, who sandbox.Principal) *item {
	t.Helper()
	it, err := tryItem(p, who)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func tryItem(p *fair.Pool, who sandbox.Principal) (*item, error) {
	it := &item{}
	h, err := p.Try(fair.Request{Principal: who, Units: 1, Evict: func(forced bool) bool {
		if it.busy && !forced {
			return false
		}
		it.gone = true
		it.Release()
		return true
	}})
	it.Hold = h
	return it, err
}

// TestEvicts has principals come to a pool that one of them filled.
func TestEvicts(t *testing.T) {
	p := fair.New(fair.Options{Name: "sessions", Total: 6})
	var a []*item
	for range 6 {
		a = append(a, hold(t, p, "a"))
	}
	a[0].Touch()
	a[1].busy = true
	b := hold(t, p, "b")
	if !a[2].gone || p.Held("a") != 5 {
		t.Error("the one that was used longest ago of those that nobody uses is still there")
	}
	for _, it := range a {
		it.busy = true
	}
	b2, b3 := hold(t, p, "b"), hold(t, p, "b")
	if !a[1].gone || !a[3].gone || p.Held("a") != 3 || p.Held("b") != 3 {
		t.Errorf("a holds %d, b %d", p.Held("a"), p.Held("b"))
	}
	// All hold their share, and use it.
	b.busy, b2.busy, b3.busy = true, true, true
	for _, who := range []sandbox.Principal{"a", "b"} {
		if _, err := tryItem(p, who); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("%s got one more: %v", who, err)
		}
	}
	// The next principal gets its share from both.
	c := []*item{hold(t, p, "c"), hold(t, p, "c")}
	if p.Held("a") != 2 || p.Held("b") != 2 {
		t.Errorf("a holds %d, b %d", p.Held("a"), p.Held("b"))
	}
	for _, it := range append(append(a, c...), b, b2, b3) {
		it.Release()
	}
	empty(t, p)
}

// TestEvictsOwn has a principal alone: its idle holds make room for its own.
func TestEvictsOwn(t *testing.T) {
	p := fair.New(fair.Options{Name: "sessions", Total: 2})
	first, second := hold(t, p, "a"), hold(t, p, "a")
	first.busy = true
	third := hold(t, p, "a")
	if first.gone || !second.gone {
		t.Error("the wrong one is gone")
	}
	third.busy = true
	if _, err := tryItem(p, "a"); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("%v", err)
	}
}

// TestGreedy has a principal whose own holds are all in use ask for more: it gets
// nothing of a principal that holds less, though that one's are idle.
func TestGreedy(t *testing.T) {
	p := fair.New(fair.Options{Name: "sandboxes", Total: 4})
	b := hold(t, p, "b")
	for range 3 {
		hold(t, p, "a").busy = true
	}
	if _, err := tryItem(p, "a"); !errors.Is(err, sandbox.Exhausted) || b.gone {
		t.Errorf("%v; the idle hold of the other is gone: %v", err, b.gone)
	}
	// A principal that comes new gets an idle one of the same number.
	c, err := tryItem(p, "c")
	if err != nil || p.Held("a") != 2 {
		t.Errorf("%v, a holds %d", err, p.Held("a"))
	}
	c.busy = true
}

// TestMorePrincipalsThanUnits does not take the only one that somebody has.
func TestMorePrincipalsThanUnits(t *testing.T) {
	p := fair.New(fair.Options{Name: "sandboxes", Total: 2})
	a, b := hold(t, p, "a"), hold(t, p, "b")
	a.busy, b.busy = true, true
	if _, err := tryItem(p, "c"); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("%v", err)
	}
}

// TestStay has a holder agree and fail: the pool evicts another.
func TestStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fair.New(fair.Options{Name: "sandboxes", Total: 2})
		var stuck *fair.Hold
		stuck, err := p.Try(fair.Request{Principal: "a", Units: 1, Evict: func(bool) bool {
			time.AfterFunc(time.Second, func() { stuck.Stay() })
			return true
		}})
		if err != nil {
			t.Fatal(err)
		}
		var other *fair.Hold
		other, err = p.Try(fair.Request{Principal: "a", Units: 1, Evict: func(bool) bool {
			time.AfterFunc(time.Second, func() { other.Release() })
			return true
		}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		h, err := p.Acquire(t.Context(), fair.Request{Principal: "b", Units: 1})
		if err != nil || time.Since(begun) > 3*time.Second {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		h.Release()
		stuck.Release()
		empty(t, p)
	})
}

// TestTake has a principal that holds more than there is, from before.
func TestTake(t *testing.T) {
	p := fair.New(fair.Options{Name: "sandboxes", Total: 2})
	var holds []*fair.Hold
	for range 3 {
		holds = append(holds, p.Take(fair.Request{Principal: "a", Units: 1}))
	}
	refused(t, p, "b", 1)
	holds[0].Release()
	refused(t, p, "b", 1)
	holds[1].Release()
	holds = append(holds, try(t, p, "b", 1))
	for _, h := range holds {
		h.Release()
	}
	empty(t, p)
}

// TestRandom does anything in any order: the figures always add up.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := fair.New(fair.Options{Name: "units", Total: 50, Small: 3, Reserve: 10})
		held := map[*fair.Hold]int64{}
		for range 2000 {
			who := sandbox.Principal(fmt.Sprint(r.IntN(5)))
			switch r.IntN(4) {
			case 0, 1:
				var h *fair.Hold
				req := fair.Request{Principal: who, Units: 1 + r.Int64N(8)}
				if r.IntN(2) == 0 {
					req.Evict = func(forced bool) bool {
						if !forced && r.IntN(2) == 0 {
							return false
						}
						delete(held, h)
						h.Release()
						return true
					}
				}
				var err error
				if h, err = p.Try(req); err == nil {
					held[h] = h.Units()
				}
			default:
				for h := range held {
					if r.IntN(2) == 0 {
						if h.Resize(1+r.Int64N(10)) == nil {
							if _, ok := held[h]; ok {
								held[h] = h.Units()
							}
						}
					} else {
						delete(held, h)
						h.Release()
					}
					break
				}
			}
			var sum int64
			for h := range held {
				sum += h.Units()
			}
			if s := p.Stats(); s.Used != sum || s.Used > s.Total || s.Waiting != 0 {
				t.Fatalf("seed %d: %+v, but %d are held", seed, s, sum)
			}
		}
		for h := range held {
			h.Release()
		}
		empty(t, p)
	}
}

package lost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// newGrace returns a Grace that records the runs it stops.
func newGrace(t *testing.T) (g *Grace, stopped func() []string) {
	var mu sync.Mutex
	var list []string
	g = &Grace{Time: time.Minute, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Stop: func(_ context.Context, p sandbox.Principal, id string) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, string(p)+" "+id)
		return nil
	}}
	return g, func() []string {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(list)
		return slices.Clone(list)
	}
}

func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGrace(t)
		g.Keep(auth.Identity{Principal: "a"}, "1", false)
		g.Keep(auth.Identity{Principal: "a"}, "2", false)
		g.Keep(auth.Identity{Principal: "b"}, "1", false)
		g.Claim("a", "1")
		g.Claim("b", "2") // there is none
		time.Sleep(59 * time.Second)
		g.Keep(auth.Identity{Principal: "a"}, "2", false) // once more
		synctest.Wait()
		if got := stopped(); len(got) != 0 {
			t.Errorf("within the time %q are stopped", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := stopped(); !slices.Equal(got, []string{"b 1"}) {
			t.Errorf("after the time %q are stopped", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := stopped(); !slices.Equal(got, []string{"a 2", "b 1"}) {
			t.Errorf("after an hour %q are stopped", got)
		}
	})
}

func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGrace(t)
		g.Keep(auth.Identity{Principal: "a"}, "1", false)
		g.Keep(auth.Identity{Principal: "b"}, "1", false)
		g.End(func(id auth.Identity) bool { return id.Principal == "a" })
		g.Wait()
		if got := stopped(); !slices.Equal(got, []string{"a 1"}) {
			t.Errorf("End stopped %q", got)
		}
		g.Keep(auth.Identity{Principal: "k"}, "1", true)
		g.Keep(auth.Identity{Principal: "l"}, "1", true)
		if !g.Busy() {
			t.Error("it is not busy with runs in grace")
		}
		g.End(func(id auth.Identity) bool { return id.Principal == "l" })
		g.Close()
		if g.Busy() {
			t.Error("it is busy after Close")
		}
		g.Keep(auth.Identity{Principal: "k"}, "2", true)
		g.Keep(auth.Identity{Principal: "c"}, "1", false)
		synctest.Wait()
		if got := stopped(); !slices.Equal(got, []string{"a 1", "b 1", "c 1", "l 1"}) {
			t.Errorf("Close stopped %q", got)
		}
	})
}

func TestKeys(t *testing.T) {
	var k Keys
	starts := 0
	do := func(p sandbox.Principal, key, call string) (string, bool, error) {
		return k.Do(t.Context(), p, key, call, func() (string, error) {
			starts++
			return fmt.Sprint("run", starts), nil
		})
	}
	for _, tt := range []struct {
		p         sandbox.Principal
		key, call string
		want      string
	}{
		{"a", "k", "x", "run1 false"},
		{"a", "k", "x", "run1 true"},
		{"b", "k", "x", "run2 false"},
		{"a", "l", "x", "run3 false"},
		{"a", "k", "y", "conflict"},
	} {
		id, again, err := do(tt.p, tt.key, tt.call)
		got := fmt.Sprint(id, " ", again)
		if err != nil {
			got = string(sandbox.KindOf(err))
		}
		if got != tt.want {
			t.Errorf("%s %s %s: %s, want %s", tt.p, tt.key, tt.call, got, tt.want)
		}
	}
}

func TestKeysAfterAFailure(t *testing.T) {
	var k Keys
	broken := errors.New("broken")
	_, _, err := k.Do(t.Context(), "a", "k", "x", func() (string, error) { return "", broken })
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _, _ = k.Do(t.Context(), "a", "k", "x", func() (string, error) { panic("broken") })
	}()
	id, again, err := k.Do(t.Context(), "a", "k", "x", func() (string, error) { return "run", nil })
	if id != "run" || again || err != nil || k.all != 1 {
		t.Errorf("%q, %v, %v; %d keys", id, again, err, k.all)
	}
}

// TestKeysAtTheSameTime has two calls arrive while the first one starts.
func TestKeysAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		var wg sync.WaitGroup
		starts := make(chan struct{}, 3)
		for range 3 {
			wg.Go(func() {
				id, _, err := k.Do(t.Context(), "a", "k", "x", func() (string, error) {
					starts <- struct{}{}
					time.Sleep(time.Second)
					return "run", nil
				})
				if id != "run" || err != nil {
					t.Errorf("%q, %v", id, err)
				}
			})
		}
		wg.Wait()
		if len(starts) != 1 {
			t.Errorf("%d starts", len(starts))
		}
	})
}

func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		take := func(p sandbox.Principal, key string) bool {
			_, again, err := k.Do(t.Context(), p, key, "x", func() (string, error) { return "run", nil })
			if err != nil {
				t.Fatal(err)
			}
			return again
		}
		for i := range mostKeys + 1 {
			take("a", fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		if len(k.byID["a"]) != mostKeys || take("a", "1") != true || take("a", "0") != false {
			t.Errorf("%d keys; the oldest must be gone, and only that", len(k.byID["a"]))
		}
		for i := range mostOfAll {
			take(sandbox.Principal(fmt.Sprint("p", i)), "k")
		}
		sum := 0
		for _, keys := range k.byID {
			sum += len(keys)
		}
		if k.all != mostOfAll || sum != k.all {
			t.Errorf("%d keys, counted as %d", sum, k.all)
		}
		time.Sleep(keepKey + time.Minute)
		if take("a", "1") {
			t.Error("a key is older than its time")
		}
	})
}

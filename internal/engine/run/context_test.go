package run

import (
	"context"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRoomForLongEvents has a principal hold all the room that it can get: one
// event of each sandbox, and half of all. Others get room at once.
func TestRoomForLongEvents(t *testing.T) {
	set := &Set{opts: Options{LongEvents: LongEvents()}}
	in := func(who sandbox.Principal) *Run {
		r := &Run{in: set.NewSandbox(SandboxOptions{}), set: set}
		r.rec.Principal = who
		return r
	}
	var held []func()
	take := func(r *Run, want bool) {
		t.Helper()
		patience := 10 * time.Second
		if !want {
			patience = 20 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		give, err := r.roomForLine(ctx)
		if (err == nil) != want {
			t.Fatalf("room for %s: %v", r.rec.Principal, err)
		}
		if err == nil {
			held = append(held, give)
		}
	}
	first := in("mallory")
	take(first, true)
	take(first, false)
	second := in("mallory")
	take(second, true)
	third := in("mallory")
	take(third, false)
	take(in("alice"), true)
	take(in("bob"), true)
	held[0]()
	take(first, false) // the free one is for another principal
	held[2]()
	take(first, true)
	held = []func(){held[1], held[3], held[4]}
	for _, give := range held {
		give()
	}
	if st := set.opts.LongEvents.Stats(); st.Used != 0 {
		t.Errorf("%d are held", st.Used)
	}
}

// TestLatestEndWithoutTimeout: runs that may take as long as their sandbox do not
// overflow the bound on the wait of others.
func TestLatestEndWithoutTimeout(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{
		sandbox.Forever: sandbox.Forever,
		time.Hour:       time.Hour + InterruptGrace + Backstop + StartTimeout + time.Minute + InterruptGrace + Backstop,
	} {
		r := &Run{in: &Sandbox{SandboxOptions: SandboxOptions{Life: &fakeLife{}}}, set: &Set{opts: Options{MaxTimeout: most}}}
		r.rec.Timeout = time.Minute
		if got := r.latestEnd(); got != want {
			t.Errorf("with a maximum of %v: %v, want %v", most, got, want)
		}
	}
}

package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// lease returns the latest lease that the driver was told, and how many it was told.
func (b *worldBox) lease() (l driver.Lease, told int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.leases); n > 0 {
		l = b.leases[n-1]
	}
	return l, len(b.leases)
}

// TestLeaseOfDriver: the driver hears when a detached sandbox ends that no process
// holds any more, and of each change before the caller does.
func TestLeaseOfDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		e := openWorld(t, w, dir, detached)
		ctx := context.Background()
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Hour, Limits: sandbox.Limits{Idle: 2 * time.Minute}})
		ends, lives := s.Created.Add(time.Hour), s.Created.Add(s.Limits.Lifetime)
		check := func(when string, want driver.Lease, times int) {
			t.Helper()
			got, told := w.only(t).lease()
			if diff := cmp.Diff(want, got); diff != "" || told != times {
				t.Errorf("%s: told %d times, want %d; the last (-want +got):\n%s", when, told, times, diff)
			}
		}
		want := driver.Lease{End: ends, Idle: 2 * time.Minute}
		check("made", want, 1)

		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}}).ID)
		check("after a run that the idle limit covers", want, 1)
		want.Busy = time.Now().Add(5*time.Minute + run.Backstop)
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}, Timeout: 5 * time.Minute})
		check("during a long run", want, 2)
		e.mustWait(t, r.ID)

		moved, err := e.SetEnd(ctx, alice, s.ID, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		want.End = moved.Ends
		check("with another end", want, 3)

		if err := e.Hibernate(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		asleep := want
		asleep.End, asleep.Idle = lives, s.Limits.Lifetime
		check("hibernated", asleep, 4)
		if err := e.Wake(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		check("woken", want, 5)

		want.Busy = time.Now().Add(5*time.Minute + run.Backstop)
		e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "4m"}, Timeout: 5 * time.Minute})
		check("during another long run", want, 6)
		e.crash(t)
		e = openWorld(t, w, dir, detached)
		e.mustSweep(t)
		check("taken over with that run", want, 8) // by the run, and by the takeover
	})
}

// TestLeaseOfHangingDriver: a driver that does not hear of a lease holds its caller
// for a limited time, also if the caller has no deadline.
func TestLeaseOfHangingDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), detached)
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Hour})
		box := w.only(t)
		hang := func(on bool) {
			box.mu.Lock()
			defer box.mu.Unlock()
			box.leaseless = on
		}
		hang(true)
		begun := time.Now()
		if _, err := e.SetEnd(context.Background(), alice, s.ID, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != leaseTime {
			t.Errorf("SetEnd took %v, want %v", took, leaseTime)
		}
		hang(false)
	})
}

// TestLeaseOfStart: no process can take over a sandbox that has not started.
func TestLeaseOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got *driver.Spec
		w.creating = func(_ context.Context, spec *driver.Spec) error {
			got = spec
			return nil
		}
		e := openWorld(t, w, t.TempDir(), detached)
		e.mustCreate(t, sandbox.CreateRequest{})
		if got.Lease == nil || *got.Lease != (driver.Lease{}) {
			t.Errorf("the box is made with the lease %+v, want an empty one", got.Lease)
		}
		usual, err := e.Usual(t.Context())
		if err != nil || usual.Lease == nil || *usual.Lease != (driver.Lease{}) {
			t.Errorf("a box of the pool is made with %+v, %v; want an empty lease", usual, err)
		}
	})
}

func TestLeaseOfHibernatingEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), detached)
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Hour, AtEnd: sandbox.AtEndHibernate})
		if l, _ := w.only(t).lease(); !l.End.Equal(s.Created.Add(s.Limits.Lifetime)) {
			t.Errorf("a sandbox that hibernates at its end ends at %v, want the end of its lifetime", l.End)
		}
	})
}

func TestLeaseOfAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		e.mustCreate(t, sandbox.CreateRequest{})
		if l, told := w.only(t).lease(); told > 0 {
			t.Errorf("the driver of an attached sandbox was told the lease %+v", l)
		}
	})
}

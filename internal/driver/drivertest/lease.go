package drivertest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// testLease checks that a detached box without a holder ends by its lease, and no
// other box does.
func testLease(t *testing.T, s *suite) {
	st := s.open(t)
	features := st.Info().Features
	if !features.Detach {
		t.Skip("the driver declares no detached boxes")
	}
	if !features.Lease {
		spec := s.h.Spec()
		spec.Detached = true
		b := st.boxOf(t, spec)
		if ok, err := driver.SetLease(step(t), b.Box, driver.Lease{}); ok || err != nil {
			t.Errorf("SetLease of a driver that declares no leases: %t, %v; want false", ok, err)
		}
		return
	}
	const idle = 2 * time.Second
	later := time.Now().Add(time.Hour)
	past := time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		lease  driver.Lease
		paused bool
		least  time.Duration // the box lives on
	}{
		"Idle":   {driver.Lease{End: later, Idle: idle}, false, idle},
		"Paused": {driver.Lease{End: later, Idle: idle}, true, idle},
		"End":    {driver.Lease{End: past, Idle: time.Hour}, false, 0},
		"Empty":  {driver.Lease{}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if c.paused && !features.Pause {
				t.Skip("the driver declares no pause")
			}
			st := s.open(t)
			spec := s.h.Spec()
			spec.Detached = true
			o := st.own(t, order{Spec: spec, Lease: &c.lease, Paused: c.paused})
			left := time.Now()
			o.kill()
			st.endsByItself(t, o.ref)
			if lived := time.Since(left); lived < c.least {
				t.Errorf("the box ended %v after its holder, want at least %v", lived, c.least)
			}
		})
	}
	t.Run("FromCreate", func(t *testing.T) {
		st := s.open(t)
		spec := s.h.Spec()
		spec.Detached, spec.Lease = true, &driver.Lease{}
		whole := st.own(t, order{Spec: spec, Midway: true})
		began := time.Now()
		whole.hear(t)
		took := time.Since(began)
		whole.kill()
		st.endsByItself(t, spec.ID)
		kills := time.Duration(killedDuringCreate)
		if s.h.Stops {
			kills = 2 // such a box takes long to notice
		}
		for i := range kills {
			spec := s.h.Spec()
			spec.Detached, spec.Lease = true, &driver.Lease{}
			o := st.own(t, order{Spec: spec, Midway: true})
			time.Sleep(took * i / kills)
			o.kill()
			if s.h.Stops {
				time.Sleep(took) // a container engine continues a request after its client has ended
			}
			st.endsByItself(t, spec.ID)
		}
	})
	t.Run("Held", func(t *testing.T) {
		st := s.open(t)
		spec := s.h.Spec()
		spec.Detached = true
		b := st.boxOf(t, spec)
		if _, err := driver.SetLease(step(t), b.Box, driver.Lease{End: past}); err != nil {
			t.Fatalf("SetLease: %v", err)
		}
		time.Sleep(idle)
		b.Answers(t, "after the end of a lease, held by its process")
	})
	t.Run("TakenOver", func(t *testing.T) {
		st := s.open(t)
		spec := s.h.Spec()
		spec.Detached = true
		o := st.own(t, order{Spec: spec, Lease: &driver.Lease{End: later, Idle: idle}})
		left := time.Now()
		o.kill()
		a, err := st.Attach(step(t), o.ref)
		if err != nil {
			t.Fatalf("Attach to a box whose lease is not over: %v", err)
		}
		if _, err := driver.SetLease(step(t), a, driver.Lease{End: later, Idle: time.Hour}); err != nil {
			t.Fatalf("SetLease of a box of an earlier process: %v", err)
		}
		if s.h.Makers != nil {
			eventually(t, "a helper process of the earlier holder lives on", func() bool { return len(s.h.Makers(t, st.dir)) == 0 })
		}
		time.Sleep(time.Until(left.Add(2 * idle)))
		NewBox(t, a).Answers(t, "after the time of its earlier holder's lease")
		if err := a.Destroy(step(t)); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	t.Run("StateRemoved", func(t *testing.T) {
		if s.h.Stops {
			t.Skip("a box of this driver cannot notice it, and ends by its lease")
		}
		st := s.open(t)
		spec := s.h.Spec()
		spec.Detached = true
		o := st.own(t, order{Spec: spec, Lease: &driver.Lease{End: later, Idle: time.Hour}})
		o.kill()
		entries, err := os.ReadDir(st.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(st.dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		st.endsByItself(t, o.ref)
	})
}

// endsByItself waits until nothing of a box is left. It does not ask the driver,
// because the driver's reaper could end the box. Only if a harness Stops, it then has
// the driver discard the rest, which has no processes.
func (st *site) endsByItself(t testing.TB, ref string) {
	t.Helper()
	patience, pause := settleTime, 10*time.Millisecond
	if st.s.h.Stops {
		patience, pause = time.Minute, 200*time.Millisecond
	}
	for deadline := time.Now().Add(patience); !st.ended(t, ref); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Errorf("after %v: a box without a holder has processes or leaves something behind, or a helper process lives on", patience)
			return
		}
	}
}

// ended reports whether nothing of a box is left but what the harness allows.
func (st *site) ended(t testing.TB, ref string) bool {
	t.Helper()
	if st.s.h.Stops {
		if _, err := st.Attach(step(t), ref); !driver.IsGone(err) || len(st.s.h.Processes(t, st.dir, ref)) > 0 {
			return false
		}
		if err := st.Discard(step(t), ref); err != nil {
			t.Errorf("Discard of a box that ended by its lease: %v", err)
		}
	}
	return (st.s.h.Processes == nil || len(st.s.h.Processes(t, st.dir, ref)) == 0) &&
		(st.s.h.Leftovers == nil || len(st.s.h.Leftovers(t, st.dir)) == 0) &&
		(st.s.h.Makers == nil || len(st.s.h.Makers(t, st.dir)) == 0)
}

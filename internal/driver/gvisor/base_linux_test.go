package gvisor_test

import (
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestBases packs the states of boxes that share a snapshot. They have little besides the
// snapshot, whose space is given back with the last of them.
func TestBases(t *testing.T) {
	dir, opened := open(t)
	d := opened.(*gvisor.Driver)
	const large = 12_000_000
	b := drivertest.Launch(t, d, harness.Spec())
	b.MustSh(t, "head -c 12000000 /dev/urandom > /tmp/random; sha256sum /tmp/random > /tmp/sum")
	take := func(b *drivertest.Box) string {
		t.Helper()
		id := sandbox.DriverSnapshot(sandbox.NewSnapshotID())
		if _, err := driver.TakeSnapshot(t.Context(), b.Box, id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	remove := func(id string) {
		t.Helper()
		if err := d.RemoveSnapshot(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	from := func(id string, shares bool) *drivertest.Box {
		t.Helper()
		spec := harness.Spec()
		spec.SharesSnapshot = shares
		made, err := d.CreateFrom(t.Context(), spec, id)
		if err != nil {
			t.Fatal(err)
		}
		return drivertest.NewBox(t, made)
	}
	bases := func() int64 {
		t.Helper()
		bytes, err := d.Bases()
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	// packed saves, packs and resumes a box.
	packed := func(b *drivertest.Box) int64 {
		t.Helper()
		if _, err := driver.Save(t.Context(), b.Box); err != nil {
			t.Fatal(err)
		}
		n, err := driver.Pack(t.Context(), b.Box)
		if err != nil {
			t.Fatal(err)
		}
		if on := sizeOfState(t, dir, b.Ref()); on != n {
			t.Errorf("packed to %d bytes, and the disk has %d", n, on)
		}
		if err := driver.Resume(t.Context(), b.Box); err != nil {
			t.Fatal(err)
		}
		b.MustSh(t, "sha256sum -c /tmp/sum")
		return n
	}
	first := take(b)
	one, two, alone := from(first, true), from(first, true), from(first, false)
	remove(first)
	shared := bases()
	if shared < large {
		t.Errorf("the boxes share %d bytes; want that of the snapshot", shared)
	}
	one.MustSh(t, "head -c 100000 /dev/urandom > /tmp/more; sha256sum /tmp/more >> /tmp/sum")
	for range 2 { // a box that woke is packed as before
		if n := packed(one); n > large/4 {
			t.Errorf("a box that shares the snapshot was packed to %d bytes", n)
		}
	}
	if n := packed(alone); n < large {
		t.Errorf("a box that does not share the snapshot was packed to %d bytes", n)
	}
	// A clone of a box shares what the box does.
	second := take(one)
	clone := from(second, false)
	remove(second)
	if n := packed(clone); n > large/4 {
		t.Errorf("a clone was packed to %d bytes", n)
	}
	for _, b := range []*drivertest.Box{one, two, alone} {
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := packed(clone); n > large/4 {
		t.Errorf("the last box was packed to %d bytes", n)
	}
	if err := clone.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A new base removes the bases that no box has.
	b.MustSh(t, "rm /tmp/random")
	third := take(b)
	fresh := from(third, true)
	if now := bases(); now == 0 || now >= large {
		t.Errorf("after the boxes have ended, bases have %d bytes of %d", now, shared)
	}
	remove(third)
	if err := fresh.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir + "/gvisor/boxes"); err != nil || len(entries) != 1 {
		t.Errorf("left are the boxes %v, %v", entries, err)
	}
}

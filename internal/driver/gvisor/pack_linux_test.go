package gvisor_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// sizeOfState returns the length of the files of a box's state, without the manifest.
func sizeOfState(t *testing.T, dir, ref string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(stateOf(dir, ref))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "manifest.json" {
			total += fi.Size()
		}
	}
	return total
}

// TestPacked packs the state of a box, by another driver than the one that resumes it.
// A damaged packed state is refused, and the box goes on from the whole one.
func TestPacked(t *testing.T) {
	dir, d := open(t)
	b, count := counting(t, d, harness.Spec())
	b.MustSh(t, "head -c 3000000 /dev/urandom > /tmp/random; sha256sum /tmp/random > /tmp/sum")
	if _, err := driver.Pack(t.Context(), b.Box); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("packed a box that runs: %v", err)
	}
	before := count()
	for range 2 {
		saved, err := driver.Save(t.Context(), b.Box)
		if err != nil {
			t.Fatal(err)
		}
		other, err := openIn(t, harness, dir).Attach(t.Context(), b.Ref())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			packed, err := driver.Pack(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			if on := sizeOfState(t, dir, b.Ref()); packed != on || packed >= saved.Bytes {
				t.Errorf("%d bytes were packed to %d, and the disk has %d", saved.Bytes, packed, on)
			}
		}
		if again, err := driver.Save(t.Context(), b.Box); err != nil || again.Bytes != sizeOfState(t, dir, b.Ref()) {
			t.Errorf("a saved box that is saved again has %d bytes, %v", again.Bytes, err)
		}
		pages := filepath.Join(stateOf(dir, b.Ref()), "pages.img")
		whole, err := os.ReadFile(pages)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte{}, whole...)
		changed[len(changed)/2] ^= 1
		if err := os.WriteFile(pages, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := driver.Resume(t.Context(), b.Box); sandbox.KindOf(err) != sandbox.Unavailable || driver.IsGone(err) || sandbox.HintOf(err) == "" {
			t.Errorf("resumed from a damaged state: %v", err)
		}
		if pids := hostProcesses(t, dir, b.Ref()); len(pids) > 0 {
			t.Errorf("left are the processes %v", pids)
		}
		if err := os.WriteFile(pages, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := driver.Resume(t.Context(), b.Box); err != nil {
			t.Fatal(err)
		}
		after := count()
		if after < before {
			t.Errorf("a program that had counted to %d has counted to %d", before, after)
		}
		before = after
		b.MustSh(t, "sha256sum -c /tmp/sum")
	}
}

// TestWakeWhilePacked resumes a box while its state is packed. The use wins: each resume
// succeeds, and the packer either was faster or meets a conflict.
func TestWakeWhilePacked(t *testing.T) {
	dir, d := open(t)
	b, count := counting(t, d, harness.Spec())
	before := count()
	var took time.Duration // to pack it undisturbed
	packed, conflicts := 0, 0
	for i := range 12 {
		if _, err := driver.Save(t.Context(), b.Box); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := driver.Pack(t.Context(), b.Box)
			result <- err
		}()
		if i == 0 {
			if err := <-result; err != nil {
				t.Fatal(err)
			}
			took = time.Since(began)
			result <- nil
		} else {
			time.Sleep(rand.N(took))
		}
		if err := driver.Resume(t.Context(), b.Box); err != nil {
			t.Fatalf("resumed while its state is packed: %v", err)
		}
		switch err := <-result; {
		case err == nil:
			packed++
		case sandbox.KindOf(err) == sandbox.Conflict:
			conflicts++
		default:
			t.Errorf("packed while the box is resumed: %v", err)
		}
		after := count()
		if after < before {
			t.Fatalf("a program that had counted to %d has counted to %d", before, after)
		}
		before = after
	}
	t.Logf("packed %d times, %d conflicts", packed, conflicts)
	if left, err := os.ReadDir(filepath.Join(dir, "gvisor", "packing")); err != nil || len(left) > 0 {
		t.Errorf("left in the packer's directory: %v, %v", left, err)
	}
}

// TestDestroyWhilePacked destroys boxes while their states are packed: nothing is left.
func TestDestroyWhilePacked(t *testing.T) {
	dir, d := open(t)
	for range 5 {
		made, err := d.Create(t.Context(), harness.Spec())
		if err != nil {
			t.Fatal(err)
		}
		b := drivertest.NewBox(t, made)
		if _, err := driver.Save(t.Context(), b.Box); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := driver.Pack(t.Context(), b.Box)
			result <- err
		}()
		time.Sleep(rand.N(50 * time.Millisecond))
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatalf("destroyed while its state is packed: %v", err)
		}
		if err := <-result; err != nil && sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("packed while the box is destroyed: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "gvisor", "boxes", b.Ref())); !os.IsNotExist(err) {
			t.Errorf("the directory of a destroyed box: %v", err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "gvisor", "packing")); err != nil || len(left) > 0 {
		t.Errorf("left in the packer's directory: %v, %v", left, err)
	}
}

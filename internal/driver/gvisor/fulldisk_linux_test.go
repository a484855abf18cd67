package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestFullDisk makes boxes where the state directory has room for some of what is
// kept of one, a page more each time.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The supervisor has it open until it is gone, which nobody waits for.
		var err error
		for range 100 {
			if err = unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	})
	d := openIn(t, harness, dir)
	// What is made once is there.
	b, err := d.Create(t.Context(), harness.Spec())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	page := make([]byte, os.Getpagesize())
	var size int64
	for ; err == nil; size += int64(len(page)) {
		_, err = filler.Write(page)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	size -= int64(len(page))
	failed := 0
	for made := false; !made; size -= int64(len(page)) {
		if err := filler.Truncate(size); err != nil {
			t.Fatal(err)
		}
		b, err := d.Create(t.Context(), harness.Spec())
		if made = err == nil; made {
			err = b.Destroy(t.Context())
		} else if failed++; errors.Is(err, sandbox.Exhausted) && !errors.Is(err, driver.ErrUnavailable) {
			err = nil
		}
		if err != nil {
			t.Errorf("with room for %d pages: %v", failed-1, err)
		}
		if refs, err := d.List(t.Context()); len(refs) > 0 || err != nil {
			t.Fatalf("with room for %d pages: left %q, %v", failed-1, refs, err)
		}
	}
	if failed < 3 {
		t.Errorf("of boxes without room only %d failed", failed)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

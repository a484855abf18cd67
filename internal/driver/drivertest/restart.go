package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testRestart checks that a box starts afresh with its files and keeps all that is not of
// its programs, and that drivers without the feature refuse.
func testRestart(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Restart {
		b := st.box(t)
		if err := driver.Restart(step(t), b.Box); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("Restart is not declared in Info: want it refused as unsupported with a hint, got %v", err)
		}
		b.Answers(t, "after a restart that was refused")
		return
	}
	t.Run("Files", func(t *testing.T) { restartFiles(t, st) })
	t.Run("Workspace", func(t *testing.T) { restartWorkspace(t, st) })
	t.Run("Other", func(t *testing.T) { restartByOther(t, s) })
}

// bootID is the file that tells one start of a kernel from another.
const bootID = "/proc/sys/kernel/random/boot_id"

// restartFiles restarts a box twice.
func restartFiles(t *testing.T, st *site) {
	b := st.box(t)
	ref := b.Ref()
	before := b.MustSh(t, "cat "+bootID)
	b.mustBash(t, variedFiles)
	want := b.mustBash(t, listVaried)
	b.counts(t)
	b.MustSh(t, "echo shared > /dev/shm/f")
	var used int64
	if u, ok := usedCPU(t, b); ok {
		used = u
	}
	for range 2 {
		if err := driver.Restart(step(t), b.Box); err != nil {
			t.Fatalf("Restart, which Info declares: %v (hint: %s)", err, sandbox.HintOf(err))
		}
		if got := b.mustBash(t, listVaried); got != want {
			t.Errorf("files after a restart:\n%s\nwant:\n%s", got, want)
		}
		after := b.MustSh(t, "cat "+bootID)
		if after == before {
			t.Errorf("the box has the boot ID %q as before", after)
		}
		before = after
		n := b.MustSh(t, "cat /tmp/n; ls /dev/shm")
		if again := b.MustSh(t, "cat /tmp/n; ls /dev/shm"); n != again || strings.Contains(n, "f") {
			t.Errorf("a program or shared memory outlived a restart: %q, then %q", n, again)
		}
	}
	if b.Ref() != ref {
		t.Errorf("the reference was %q, and is %q", ref, b.Ref())
	}
	if u, ok := usedCPU(t, b); ok && u < used {
		t.Errorf("the box had used %d ns of CPU time before two restarts, and %d ns after", used, u)
	}
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatalf("Receipt after a restart: %v", err)
	}
	for _, r := range receipt.Unenforced() {
		if !slices.Contains(st.s.h.Spec().AllowUnenforced, r) {
			t.Errorf("a box that restarted does not enforce %s", r)
		}
	}
	if st.Info().Features.Pause {
		if _, err := driver.Pause(step(t), b.Box); err != nil {
			t.Fatal(err)
		}
		if err := driver.Restart(step(t), b.Box); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("Restart of a paused box: %v, want a conflict", err)
		}
		if err := driver.Resume(step(t), b.Box); err != nil {
			t.Fatal(err)
		}
	}
	b.Answers(t, "after restarts")
}

// usedCPU returns the CPU time of a box in nanoseconds, if its driver counts it.
func usedCPU(t *testing.T, b *Box) (int64, bool) {
	t.Helper()
	u, ok, err := driver.ReadUsage(step(t), b.Box)
	if err != nil {
		return 0, false // no control group counts it here
	}
	return int64(u.CPU), ok
}

// restartWorkspace checks that a box has its workspace after a restart.
func restartWorkspace(t *testing.T, st *site) {
	if !st.Info().Features.Workspace {
		t.Skip("the driver has no workspaces")
	}
	spec := st.s.h.Spec()
	spec.Workspace = workspaceDir(t)
	b := st.boxOf(t, spec)
	b.MustSh(t, "echo mine > /data/mine; echo kept > /tmp/kept")
	if err := driver.Restart(step(t), b.Box); err != nil {
		t.Fatal(err)
	}
	if out := b.MustSh(t, "cat /data/mine /tmp/kept; echo more > /data/more; cat /data/more"); out != "mine\nkept\nmore\n" {
		t.Errorf("files after a restart: %q", out)
	}
}

// restartByOther restarts a box that another driver made, and saves it then.
func restartByOther(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Detach {
		t.Skip("the driver has no boxes that outlive it")
	}
	spec := s.h.Spec()
	spec.Detached = true
	first, err := s.h.Open(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := first.Create(step(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	NewBox(t, made).MustSh(t, "echo kept > /tmp/kept")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := st.Attach(step(t), made.Ref())
	if err != nil {
		t.Fatal(err)
	}
	b := NewBox(t, found)
	if err := driver.Restart(step(t), b.Box); err != nil {
		t.Fatal(err)
	}
	if st.Info().Features.Save {
		// The driver knows all connections of a box that it restarted.
		if _, err := driver.Save(step(t), b.Box); err != nil {
			t.Errorf("Save after a restart: %v", err)
		}
		if err := driver.Resume(step(t), b.Box); err != nil {
			t.Fatal(err)
		}
	}
	if out := b.MustSh(t, "cat /tmp/kept"); out != "kept\n" {
		t.Errorf("files after a restart: %q", out)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
}

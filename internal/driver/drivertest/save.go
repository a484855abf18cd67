package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testSave checks that a saved box has no processes and goes on where it stood, and
// that drivers without the feature refuse to save.
func testSave(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Save {
		b := st.box(t)
		if _, err := driver.Save(step(t), b.Box); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("Save is not declared in Info: want it refused as unsupported, got %v", err)
		}
		b.Answers(t, "after a save that was refused")
		return
	}
	if !st.Info().Features.Pause {
		t.Error("Info declares Save without Pause")
	}
	t.Run("GoesOn", func(t *testing.T) { saveGoesOn(t, st) })
	t.Run("Saved", func(t *testing.T) { saveSaved(t, st) })
	t.Run("Again", func(t *testing.T) { saveAgain(t, st) })
	t.Run("Attached", func(t *testing.T) { saveAttached(t, st) })
	t.Run("Later", func(t *testing.T) { saveLater(t, s) })
	t.Run("Destroy", func(t *testing.T) { saveDestroy(t, st) })
	t.Run("Cancel", func(t *testing.T) { saveCancel(t, st) })
	t.Run("Context", func(t *testing.T) { saveContext(t, s, st) })
	t.Run("Workspace", func(t *testing.T) { saveWorkspace(t, st) })
	t.Run("Network", func(t *testing.T) { saveNetwork(t, st) })
}

func save(t testing.TB, b *Box) driver.Saved {
	t.Helper()
	saved, err := driver.Save(step(t), b.Box)
	if err != nil {
		t.Fatalf("Save, which Info declares: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	if saved.Bytes <= 0 {
		t.Errorf("Save returns %+v: a state has bytes", saved)
	}
	return saved
}

// counts starts a program that counts in its memory, in the background, and returns
// a function that reads the count.
func (b *Box) counts(t testing.TB) func() int {
	t.Helper()
	b.MustSh(t, "setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n.new; mv /tmp/n.new /tmp/n; sleep 0.02; done' >/dev/null 2>&1 </dev/null &")
	read := func() int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(b.MustSh(t, "cat /tmp/n")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "the program does not count", func() bool {
		r, err := b.Run(step(t), Sh("cat /tmp/n"))
		return err == nil && strings.TrimSpace(r.Stdout) > "0"
	})
	return read
}

// checkSaved checks that a saved box has no processes on this machine.
func (st *site) checkSaved(t testing.TB, b *Box) {
	t.Helper()
	if st.s.h.Processes == nil {
		return
	}
	if pids := st.s.h.Processes(t, st.dir, b.Ref()); len(pids) > 0 {
		t.Errorf("a saved box has the processes %v, want none", pids)
	}
}

func saveGoesOn(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	b.MustSh(t, "echo kept > /tmp/kept; mkdir -p /dev/shm/d; echo shared > /dev/shm/d/f")
	var before int
	for i := range 3 {
		before = count()
		saved := save(t, b)
		st.checkSaved(t, b)
		began := time.Now()
		resume(t, b)
		restored := time.Since(began)
		b.Answers(t, "after Resume of a saved box")
		t.Logf("round %d: stood still for %v, %s on disk, restored within %v, answered within %v", i+1, saved.Stood.Round(time.Millisecond),
			sandbox.FormatBytes(saved.Bytes), restored.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		after := count()
		if after < before || after > before+500 {
			t.Errorf("a program that had counted to %d has counted to %d: it did not go on where it stood", before, after)
		}
		eventually(t, "a program of a restored box does not go on", func() bool { return count() > after })
	}
	if out := b.MustSh(t, "cat /tmp/kept /dev/shm/d/f; id -u"); !strings.HasPrefix(out, "kept\nshared\n") {
		t.Errorf("files of a restored box: %q", out)
	}
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatalf("Receipt of a restored box: %v", err)
	}
	for _, c := range receipt {
		if !c.Enforced && c.Asked != "" && !strings.Contains(strings.Join(names(st.s.h.Spec().AllowUnenforced), " "), string(c.Name)) {
			t.Errorf("a restored box does not enforce %s: %+v", c.Name, c)
		}
	}
}

func names(list []sandbox.ControlName) (out []string) {
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

// saveSaved uses a box while it is saved.
func saveSaved(t *testing.T, st *site) {
	b := st.box(t)
	save(t, b)
	if again, err := driver.Save(step(t), b.Box); err != nil || again.Bytes <= 0 {
		t.Errorf("Save of a saved box: %+v, %v", again, err)
	}
	if _, err := driver.Pause(step(t), b.Box); err != nil {
		t.Errorf("Pause of a saved box: %v", err)
	}
	st.checkSaved(t, b)
	if c, err := b.Dial(step(t)); err == nil {
		c.Close()
		t.Error("a saved box can be dialled")
	} else if driver.IsGone(err) {
		t.Errorf("Dial of a saved box says that it is gone: %v", err)
	}
	if in, ok, err := driver.ReadIncidents(step(t), b.Box); ok && !in.Alive || err != nil {
		t.Errorf("incidents of a saved box: %+v, %v", in, err)
	}
	if _, _, err := driver.ReadUnnamed(step(t), b.Box); err != nil {
		t.Errorf("files without a name of a saved box: %v", err)
	}
	refs, err := st.List(step(t))
	if err != nil || !strings.Contains(strings.Join(refs, " "), b.Ref()) {
		t.Errorf("List while a box is saved: %q, %v", refs, err)
	}
	resume(t, b)
	b.Answers(t, "after a saved box was looked at")
}

// saveAgain saves a paused box, and saves and resumes again and again.
func saveAgain(t *testing.T, st *site) {
	b := st.box(t)
	pause(t, b)
	save(t, b)
	resume(t, b)
	resume(t, b)
	b.Answers(t, "after a save of a paused box")
	pause(t, b)
	resume(t, b)
	save(t, b)
	resume(t, b)
	if out := b.MustSh(t, "sleep 0.1; echo slept"); !strings.Contains(out, "slept") {
		t.Errorf("timers after a restore: %q", out)
	}
}

// saveAttached saves by one Box and resumes by another.
func saveAttached(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	before := count()
	save(t, b)
	a, err := st.s.openDir(t, st.dir).Attach(step(t), b.Ref())
	if err != nil {
		resume(t, b)
		t.Fatalf("Attach to a saved box: %v", err)
	}
	if err := driver.Resume(step(t), a); err != nil {
		t.Fatalf("Resume by another Box: %v", err)
	}
	b.Answers(t, "after Resume by another Box")
	if after := count(); after < before {
		t.Errorf("a program that had counted to %d has counted to %d", before, after)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy of a box that another Box restored: %v", err)
	}
	st.checkSaved(t, b)
}

// saveLater saves a detached box, and resumes it when its driver has ended.
func saveLater(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Detach {
		t.Skip("the driver has no detached boxes")
	}
	first, err := s.h.Open(st.dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := s.h.Spec()
	spec.Detached = true
	made, err := first.Create(step(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBox(t, made)
	count := b.counts(t)
	before := count()
	save(t, b)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	st.checkSaved(t, b)
	a, err := st.Attach(step(t), b.Ref())
	if err != nil {
		t.Fatalf("Attach to a saved box of a driver that has ended: %v", err)
	}
	later := NewBox(t, a)
	resume(t, later)
	later.Answers(t, "after a restore by another driver")
	if n, err := strconv.Atoi(strings.TrimSpace(later.MustSh(t, "cat /tmp/n"))); err != nil || n < before {
		t.Errorf("a program that had counted to %d has counted to %d, %v", before, n, err)
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Error(err)
	}
}

func saveDestroy(t *testing.T, st *site) {
	b := st.box(t)
	save(t, b)
	if err := b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy of a saved box: %v", err)
	}
	checkDestroyed(t, st, b.Box)
}

// saveCancel ends the context of a save, after which the box runs on or is saved.
func saveCancel(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	for _, after := range []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond} {
		before := count()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := driver.Save(ctx, b.Box)
		cancel()
		t.Logf("after %v: %v", after, err)
		resume(t, b)
		b.Answers(t, "after a save that was cancelled")
		if after := count(); after < before {
			t.Errorf("a program that had counted to %d has counted to %d", before, after)
		}
	}
}

// saveContext saves a box with an interpreter that holds a value.
func saveContext(t *testing.T, s *suite, st *site) {
	s.python(t)
	b := st.box(t)
	id := guestapi.DefaultContextID("python")
	b.Execute(t, inContext(id, "import random, threading; x = list(range(1000)); e = threading.Event(); threading.Thread(target=e.wait, daemon=True).start()"), nil)
	saved := save(t, b)
	began := time.Now()
	resume(t, b)
	x := b.Execute(t, inContext(id, "e.set(); sum(x)"), nil)
	if x.result != "499500" {
		t.Errorf("a context after a restore: %+v", x)
	}
	t.Logf("%s on disk; a context answered %v after Resume began", sandbox.FormatBytes(saved.Bytes), time.Since(began).Round(time.Millisecond))
}

// saveWorkspace saves a box whose program has a file of the workspace open.
func saveWorkspace(t *testing.T, st *site) {
	if !st.Info().Features.Workspace {
		t.Skip("the driver has no workspaces")
	}
	dir := workspaceDir(t)
	spec := st.s.h.Spec()
	spec.Workspace = dir
	b := st.boxOf(t, spec)
	b.MustSh(t, "mkdir d; setsid sh -c 'exec 3>>d/log; while :; do echo x >&3; sleep 0.02; done' >/dev/null 2>&1 </dev/null &")
	log := filepath.Join(dir, "d", "log")
	size := func() int64 {
		fi, err := os.Stat(log)
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	eventually(t, "the program writes nothing to the workspace", func() bool { return size() > 0 })
	save(t, b)
	if err := os.Rename(log, log+".away"); err != nil {
		t.Fatal(err)
	}
	err := driver.Resume(step(t), b.Box)
	if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), sandbox.WorkDir+"/d/log") || sandbox.HintOf(err) == "" {
		t.Errorf("Resume without a file that a program has open: %v (hint: %s), want Unavailable, the file and a hint", err, sandbox.HintOf(err))
	}
	st.checkSaved(t, b)
	if err := os.Rename(log+".away", log); err != nil {
		t.Fatal(err)
	}
	resume(t, b)
	before := size()
	eventually(t, "a restored program does not go on writing to its open file of the workspace", func() bool { return size() > before })
}

// saveNetwork saves a box with a network, and changes the policy meanwhile.
func saveNetwork(t *testing.T, st *site) {
	if !st.Info().Features.Network {
		t.Skip("the driver has no networks")
	}
	spec := st.s.h.Spec()
	spec.Network = sandbox.NetworkInternet
	b := st.boxOf(t, spec)
	save(t, b)
	if _, ok, err := driver.ReadTraffic(step(t), b.Box, 0); !ok || err != nil {
		t.Errorf("traffic of a saved box: %t, %v", ok, err)
	}
	if err := driver.SetNetwork(step(t), b.Box, sandbox.NetworkNone, nil); err != nil {
		t.Fatalf("SetNetwork of a saved box: %v", err)
	}
	resume(t, b)
	b.Answers(t, "after a restore with a network")
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range receipt {
		if c.Name == sandbox.ControlNetwork && (!c.Enforced || c.Asked != string(sandbox.NetworkNone)) {
			t.Errorf("the policy that was set while the box was saved is not in force: %+v", c)
		}
	}
}

package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// counting launches a box whose program counts in its memory, and returns a function
// that reads the count.
func counting(t *testing.T, d driver.Driver, spec *driver.Spec) (*drivertest.Box, func() int) {
	t.Helper()
	b := drivertest.Launch(t, d, spec)
	return b, countIn(t, b)
}

// countIn is counting in a box.
func countIn(t *testing.T, b *drivertest.Box) func() int {
	t.Helper()
	b.MustSh(t, "setsid sh -c 'n=1; echo 1 > /tmp/n; while :; do n=$((n+1)); echo $n > /tmp/n.new && mv /tmp/n.new /tmp/n; sleep 0.02; done' >/dev/null 2>&1 </dev/null & while [ ! -s /tmp/n ]; do sleep 0.01; done")
	return func() int {
		t.Helper()
		n, err := strconv.Atoi(strings.TrimSpace(b.MustSh(t, "cat /tmp/n")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func stateOf(dir, ref string) string { return filepath.Join(dir, "gvisor", "boxes", ref, "state") }

// TestSaveDamaged changes a saved state: the box is refused, keeps its state, and
// leaves no process. The state as it was goes on.
func TestSaveDamaged(t *testing.T) {
	dir, d := open(t)
	b, count := counting(t, d, harness.Spec())
	before := count()
	if _, err := driver.Save(t.Context(), b.Box); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(stateOf(dir, b.Ref()))
	if err != nil || len(entries) != 4 {
		t.Fatalf("the state has the files %v, %v", entries, err)
	}
	for _, e := range entries {
		path := filepath.Join(stateOf(dir, b.Ref()), e.Name())
		if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), fi.Mode(), err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := append([]byte{}, whole...)
		changed[len(changed)/2] ^= 1
		for what, data := range map[string][]byte{"a changed byte": changed, "half": whole[:len(whole)/2], "nothing": nil} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			err := driver.Resume(t.Context(), b.Box)
			if sandbox.KindOf(err) != sandbox.Unavailable || driver.IsGone(err) || sandbox.HintOf(err) == "" {
				t.Errorf("%s in %s: %v (hint: %s); want unavailable, with a hint", what, e.Name(), err, sandbox.HintOf(err))
			}
			if pids := hostProcesses(t, dir, b.Ref()); len(pids) > 0 {
				t.Errorf("%s in %s left the processes %v", what, e.Name(), pids)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := driver.Resume(t.Context(), b.Box); err != nil {
		t.Fatal(err)
	}
	if after := count(); after < before {
		t.Errorf("a program that had counted to %d has counted to %d", before, after)
	}
}

// installBuild replaces the executables in a directory by those of a build that has
// another hash, as an update does.
func installBuild(t *testing.T, dir, version string) (program, guest string) {
	t.Helper()
	program, guest = filepath.Join(dir, "glovebox"), filepath.Join(dir, "glovebox-guest")
	for path, from := range map[string]string{program: os.Getenv(programEnv), guest: os.Getenv(guestEnv)} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", append(data, version...), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	return program, guest
}

// TestSaveGivenUp has callers leave while gVisor writes a state. The state is removed
// when it is complete, and the box can be saved and resumed afterwards.
func TestSaveGivenUp(t *testing.T) {
	dir, d := open(t)
	b := drivertest.Launch(t, d, harness.Spec())
	b.MustSh(t, "head -c 60000000 /dev/urandom >/dev/shm/fill")
	written := filepath.Join(dir, "gvisor", "boxes", b.Ref(), "state.new")
	left := false // while gVisor wrote
	for after := 2 * time.Millisecond; after < 2*time.Second && !left; after = after * 5 / 4 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := driver.Save(ctx, b.Box)
		_, statErr := os.Stat(written)
		cancel()
		left = err != nil && statErr == nil
		if err == nil {
			if err := driver.Resume(t.Context(), b.Box); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !left {
		t.Skip("no caller left while gVisor wrote: this machine is too fast or too slow")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(written); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the files of a save that was given up stay")
		}
	}
	if _, err := driver.Save(t.Context(), b.Box); err != nil {
		t.Fatalf("a save after one that was given up: %v", err)
	}
	if err := driver.Resume(t.Context(), b.Box); err != nil {
		t.Fatal(err)
	}
	b.MustSh(t, "test -s /dev/shm/fill")
}

// TestSaveOtherBuild saves a box by one build, whose files an update then replaces. A
// driver of the new build restores the box by the old one, saves it again and restores
// it again. Without the kept executables it refuses. When no box needs them, they go.
func TestSaveOtherBuild(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	var program, guest string
	install := func(version string) {
		t.Helper()
		program, guest = installBuild(t, files, version)
	}
	build := func() *gvisor.Driver {
		t.Helper()
		d, err := gvisor.New(gvisor.Options{StateDir: dir, Program: program, Guest: guest})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	builds := func(d *gvisor.Driver, want int) {
		t.Helper()
		for range 100 {
			if list, err := d.Builds(); err == nil && len(list) == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		list, err := d.Builds()
		t.Errorf("kept are %v, %v; want %d", list, err, want)
	}
	install("v1")
	old := build()
	spec := harness.Spec()
	spec.Detached = true
	made, err := old.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := drivertest.NewBox(t, made)
	before := countIn(t, b)()
	saved, err := driver.Save(t.Context(), b.Box)
	if err != nil {
		t.Fatal(err)
	}
	builds(old, 1)
	if list, _ := old.Builds(); len(list) == 1 && (list[0].Hash != saved.Build || list[0].Bytes < 1<<20) {
		t.Errorf("kept is %+v, and the state needs %s", list[0], saved.Build)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	install("v2")
	fresh := build()
	if refs, err := fresh.List(t.Context()); err != nil || len(refs) != 1 {
		t.Fatalf("boxes %v, %v", refs, err)
	}
	attached, err := fresh.Attach(t.Context(), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "gvisor", "builds")
	if err := os.Rename(kept, kept+".away"); err != nil {
		t.Fatal(err)
	}
	if err := driver.Resume(t.Context(), attached); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "another build") || sandbox.HintOf(err) == "" {
		t.Errorf("restored without the build: %v", err)
	}
	if err := errors.Join(os.RemoveAll(kept), os.Rename(kept+".away", kept)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := driver.Resume(t.Context(), attached); err != nil {
			t.Fatal(err)
		}
		a := drivertest.NewBox(t, attached)
		out := a.MustSh(t, "cat /tmp/n")
		after, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil || after < before {
			t.Errorf("a program that had counted to %d has counted to %q", before, out)
		}
		before = after
		if again, err := driver.Save(t.Context(), attached); err != nil || again.Build != saved.Build {
			t.Errorf("saved again by %s, %v; want the build %s", again.Build, err, saved.Build)
		}
	}
	if err := attached.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	third := build()
	if _, err := third.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	builds(third, 0)
}

// TestSaveHeld refuses to save a box that another driver is connected to, because its
// guest has a socket of the host.
func TestSaveHeld(t *testing.T) {
	dir, d := open(t)
	b, count := counting(t, d, harness.Spec())
	a, err := openIn(t, harness, dir).Attach(t.Context(), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := a.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The guest answers on it, so the connection is there.
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: box\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	before := count()
	_, err = driver.Save(t.Context(), b.Box)
	if sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
		t.Errorf("saved while another driver is connected: %v; want a conflict with a hint", err)
	}
	if after := count(); after < before {
		t.Errorf("a program that had counted to %d has counted to %d", before, after)
	}
}

// TestSaveDuringDials saves a box while dials begin all the time. A dial that began before
// the save must not reach the guest after it has been paused.
func TestSaveDuringDials(t *testing.T) {
	_, d := open(t)
	b, _ := counting(t, d, harness.Spec())
	snapshots := d.(driver.SnapshotKeeper)
	ctx, cancel := context.WithCancel(t.Context())
	var dials sync.WaitGroup
	defer dials.Wait()
	defer cancel()
	for range 4 {
		dials.Go(func() {
			for ctx.Err() == nil {
				// A dial during a save is refused.
				if c, err := b.Dial(ctx); err == nil {
					c.Close()
				}
			}
		})
	}
	for range 10 {
		id := sandbox.NewID()
		began := time.Now()
		if _, err := driver.TakeSnapshot(t.Context(), b.Box, id); err != nil {
			t.Fatalf("snapshot after %v: %v", time.Since(began), err)
		}
		if err := snapshots.RemoveSnapshot(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSaveSecrets(t *testing.T) {
	_, d := open(t)
	spec := harness.Spec()
	spec.Network = "a.example"
	spec.Secrets = []sandbox.Secret{{Name: "TOKEN", Hosts: "a.example", Value: sandbox.NewSecretValue("value-of-the-secret")}}
	b := drivertest.Launch(t, d, spec)
	if _, err := driver.Save(t.Context(), b.Box); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("a box with secrets was saved: %v", err)
	}
	b.Answers(t, "after a save that was refused")
}

// TestSaveFullDisk saves a box where the disk has room for some of the state, more
// each time. A save that fails leaves the box as it was, and one that succeeds can be
// restored.
func TestSaveFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=384m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
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
	b, count := counting(t, d, harness.Spec())
	b.MustSh(t, "head -c 8000000 /dev/urandom > /tmp/big; sha256sum /tmp/big > /tmp/sum")
	filler := filepath.Join(dir, "filler")
	refused, saved := 0, 0
	// fill leaves room for some bytes. The box may write meanwhile.
	fill := func(room int64) (err error) {
		f, err := os.Create(filler)
		if err != nil {
			return err
		}
		defer f.Close()
		for range 100 {
			var st unix.Statfs_t
			if err := unix.Statfs(dir, &st); err != nil {
				return err
			}
			err = unix.Fallocate(int(f.Fd()), 0, 0, max(4096, int64(st.Bavail)*st.Bsize-room))
			if err != unix.ENOSPC {
				return err
			}
		}
		return err
	}
	// The last has room for the program of the tests, too, which is kept with a state.
	for room := int64(0); room < 256<<20; room += 16<<20 + 4096 {
		if err := fill(room); err != nil {
			t.Fatal(err)
		}
		before := count()
		_, err := driver.Save(t.Context(), b.Box)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		switch {
		case err == nil:
			saved++
		case sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "":
			t.Errorf("with room for %d bytes: %v; want exhausted, with a hint", room, err)
		default:
			refused++
		}
		if err := driver.Resume(t.Context(), b.Box); err != nil {
			t.Fatalf("with room for %d bytes: %v", room, err)
		}
		if after := count(); after < before {
			t.Errorf("with room for %d bytes, a program that had counted to %d has counted to %d", room, before, after)
		}
		b.MustSh(t, "sha256sum -c /tmp/sum")
	}
	t.Logf("%d saves were refused, and %d succeeded", refused, saved)
	if refused == 0 || saved == 0 {
		t.Error("the disk was never full, or always")
	}
}

// TestSaveKilled kills the supervisor while it saves and restores a detached box.
// Afterwards the box is as it was, or saved, or gone; nothing of it is left when it is
// discarded, and what is there has not run twice.
func TestSaveKilled(t *testing.T) {
	dir, d := open(t)
	outcomes := map[string]int{}
	for i := range 12 {
		victim, err := gvisor.New(gvisor.Options{StateDir: dir, Program: os.Getenv(programEnv), Guest: os.Getenv(guestEnv)})
		if err != nil {
			t.Fatal(err)
		}
		spec := harness.Spec()
		spec.Detached = true
		made, err := victim.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		b := drivertest.NewBox(t, made)
		b.MustSh(t, "echo kept > /tmp/kept")
		supervisor := supervisorOf(t, dir, hostProcesses(t, dir, b.Ref())[0])
		step := func() error { _, err := driver.Save(t.Context(), b.Box); return err }
		if i%2 == 1 {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			step = func() error { return driver.Resume(t.Context(), b.Box) }
		}
		ended := make(chan error, 1)
		go func() { ended <- step() }()
		time.Sleep([]time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second}[rand.IntN(5)])
		if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-ended
		if err := victim.Close(); err != nil {
			t.Log(err)
		}
		a, err := d.Attach(t.Context(), b.Ref())
		outcome := "goes on"
		switch {
		case driver.IsGone(err):
			outcome = "gone"
			t.Log(err)
		case err != nil:
			t.Errorf("attach after a kill: %v", err)
		default:
			if pids := hostProcesses(t, dir, b.Ref()); len(pids) == 0 {
				outcome = "saved"
			}
			if err := driver.Resume(t.Context(), a); err != nil {
				t.Errorf("%s: resume after a kill: %v", outcome, err)
				break
			}
			if out := drivertest.NewBox(t, a).MustSh(t, "cat /tmp/kept"); out != "kept\n" {
				t.Errorf("%s: %q", outcome, out)
			}
		}
		outcomes[fmt.Sprintf("%s after a kill in step %d", outcome, i%2)]++
		if err := d.Discard(t.Context(), b.Ref()); err != nil {
			t.Errorf("%s: discard: %v", outcome, err)
		}
		if pids := hostProcesses(t, dir, b.Ref()); len(pids) > 0 {
			t.Errorf("%s: left the processes %v", outcome, pids)
		}
		if _, err := os.Stat(filepath.Dir(stateOf(dir, b.Ref()))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left the directory: %v", outcome, err)
		}
	}
	t.Log(outcomes)
}

// supervisorOf returns the parent of a box's process.
func supervisorOf(t *testing.T, dir string, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil || parent < 2 {
		t.Fatalf("the parent of %d is %d, %v", pid, parent, err)
	}
	return parent
}

// TestSnapshotOtherBuild makes a box from a snapshot of an earlier build, which is kept
// for it, also if no box needs it.
func TestSnapshotOtherBuild(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	build := func(version string) *gvisor.Driver {
		t.Helper()
		program, guest := installBuild(t, files, version)
		d, err := gvisor.New(gvisor.Options{StateDir: dir, Program: program, Guest: guest})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	old := build("v1")
	made, err := old.Create(t.Context(), harness.Spec())
	if err != nil {
		t.Fatal(err)
	}
	b := drivertest.NewBox(t, made)
	b.MustSh(t, "echo kept >/tmp/file")
	id := sandbox.NewID()
	if _, err := driver.TakeSnapshot(t.Context(), b.Box, id); err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	fresh := build("v2")
	// The first box starts the supervisor, which removes builds that nothing needs.
	drivertest.Launch(t, fresh, harness.Spec()).MustSh(t, "true")
	for range 2 {
		spec := harness.Spec()
		made, err := fresh.CreateFrom(t.Context(), spec, id)
		if err != nil {
			t.Fatal(err)
		}
		from := drivertest.NewBox(t, made)
		if got := from.MustSh(t, "cat /tmp/file"); got != "kept\n" {
			t.Errorf("the file of the snapshot has %q", got)
		}
		if err := from.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := fresh.RemoveSnapshot(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestSavedGroup: a supervisor may die before it removes the control group of a box that it
// saved. The next one knows none for the box, and Discard removes it.
func TestSavedGroup(t *testing.T) {
	dir, d := open(t)
	first, err := harness.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := harness.Spec()
	spec.Detached = true
	b, err := first.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	had := groups(t, b.Ref())
	if _, err := driver.Save(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if left := groups(t, b.Ref()); len(left) > 0 {
		t.Errorf("a saved box has the groups %v", left)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for _, group := range had {
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Attach(t.Context(), b.Ref()); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(t.Context(), b.Ref()); err != nil {
		t.Fatal(err)
	}
	if left := groups(t, b.Ref()); len(left) > 0 {
		t.Errorf("left the groups %v", left)
	}
}

package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testSnapshot checks that boxes made from a snapshot have its state and an identity of
// their own, and that drivers without the feature refuse.
func testSnapshot(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Snapshot {
		b := st.box(t)
		if _, err := driver.TakeSnapshot(step(t), b.Box, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("Snapshot is not declared in Info: want it refused as unsupported with a hint, got %v", err)
		}
		noRollback(t, st, b)
		if _, err := driver.Snapshots(st.Driver); sandbox.KindOf(err) != sandbox.Unsupported && !st.Info().Features.DiskSnapshot {
			t.Errorf("Snapshot is not declared in Info: want Snapshots refused as unsupported, got %v", err)
		}
		b.Answers(t, "after a snapshot that was refused")
		return
	}
	t.Run("Clones", func(t *testing.T) { snapshotClones(t, st) })
	t.Run("List", func(t *testing.T) { snapshotList(t, s) })
	t.Run("Rollback", func(t *testing.T) {
		if !st.Info().Features.Rollback {
			noRollback(t, st, st.box(t))
			return
		}
		if !st.Info().Features.Save {
			t.Error("Info declares Rollback without Save")
		}
		snapshotRollback(t, st)
	})
	t.Run("Shared", func(t *testing.T) { snapshotShared(t, st) })
	t.Run("Differs", func(t *testing.T) { snapshotDiffers(t, st) })
	t.Run("Context", func(t *testing.T) { snapshotContext(t, s, st) })
	t.Run("Workspace", func(t *testing.T) { snapshotWorkspace(t, st) })
	t.Run("Network", func(t *testing.T) { snapshotNetwork(t, st) })
}

// noRollback checks that a driver without the feature refuses a rollback.
func noRollback(t *testing.T, st *site, b *Box) {
	t.Helper()
	if err := driver.Rollback(step(t), b.Box, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("Rollback is not declared in Info: want it refused as unsupported with a hint, got %v", err)
	}
	if err := driver.CanRollback(st.Driver); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("Rollback is not declared in Info: want CanRollback to say so, got %v", err)
	}
	b.Answers(t, "after a rollback that was refused")
}

// snapshot takes a snapshot of b, which is removed at the end of the test.
func (st *site) snapshot(t testing.TB, b *Box) (string, driver.Snapshot) {
	t.Helper()
	id := sandbox.NewID()
	taken, err := driver.TakeSnapshot(step(t), b.Box, id)
	if err != nil {
		t.Fatalf("Snapshot, which Info declares: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	if told := !st.Info().Features.Remote; taken.Bytes < 0 || taken.Stood < 0 || told && (taken.Bytes == 0 || taken.Stood == 0) {
		t.Errorf("Snapshot returns %+v: it has bytes, and the box stood still", taken)
	}
	k := st.keeper(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepTime)
		defer cancel()
		if err := k.RemoveSnapshot(ctx, id); err != nil {
			t.Error(err)
		}
	})
	return id, taken
}

func (st *site) keeper(t testing.TB) driver.SnapshotKeeper {
	t.Helper()
	k, err := driver.Snapshots(st.Driver)
	if err != nil {
		t.Fatalf("Info declares Snapshot: %v", err)
	}
	return k
}

// clone makes a box from a snapshot, which is destroyed at the end of the test.
func (st *site) clone(t testing.TB, spec *driver.Spec, id string) *Box {
	t.Helper()
	made, err := st.keeper(t).CreateFrom(step(t), spec, id)
	if err != nil {
		t.Fatalf("CreateFrom: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() { destroyClone(t, made) })
	return NewBox(t, made)
}

func destroyClone(t testing.TB, b driver.Box) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	if err := b.Destroy(ctx); err != nil {
		t.Errorf("Destroy of a clone: %v", err)
	}
}

// snapshotShared has boxes share a snapshot that is removed, and saves and wakes them.
func snapshotShared(t *testing.T, st *site) {
	b := st.box(t)
	b.MustSh(t, "echo kept > /tmp/kept")
	id, _ := st.snapshot(t, b)
	var boxes []*Box
	for range 2 {
		spec := st.s.h.Spec()
		spec.SharesSnapshot = true
		boxes = append(boxes, st.clone(t, spec, id))
	}
	if err := st.keeper(t).RemoveSnapshot(step(t), id); err != nil {
		t.Fatal(err)
	}
	for i, b := range boxes {
		b.MustSh(t, "echo "+strconv.Itoa(i)+" > /tmp/own")
		if st.Info().Features.Save {
			if _, err := driver.Save(step(t), b.Box); err != nil {
				t.Fatal(err)
			}
			if _, err := driver.Pack(step(t), b.Box); err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
				t.Fatal(err)
			}
			if err := driver.Resume(step(t), b.Box); err != nil {
				t.Fatal(err)
			}
		}
		if out, want := b.MustSh(t, "cat /tmp/kept /tmp/own"), "kept\n"+strconv.Itoa(i)+"\n"; out != want {
			t.Errorf("box %d has the files %q; want %q", i, out, want)
		}
	}
}

// snapshotClones makes two boxes from one snapshot, and uses all three.
func snapshotClones(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	b.MustSh(t, "echo kept > /tmp/kept; mkdir -p /dev/shm/d; echo shared > /dev/shm/d/f")
	if out := b.MustSh(t, "cat "+guestapi.GenerationFile+" 2>/dev/null || echo none"); out != "none\n" {
		t.Errorf("the generation of a new box is %q", out)
	}
	before := count()
	id, taken := st.snapshot(t, b)
	b.Answers(t, "after a snapshot")
	after := count()
	if after < before || after > before+500 {
		t.Errorf("a program that had counted to %d has counted to %d: it did not go on after a snapshot", before, after)
	}
	b.MustSh(t, "echo later > /tmp/kept")
	if _, err := driver.TakeSnapshot(step(t), b.Box, id); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second snapshot of the same identifier: %v, want a conflict", err)
	}
	names, generations := map[string]bool{}, map[string]bool{}
	for i := range 2 {
		spec := st.s.h.Spec()
		spec.Hostname = "clone-" + strconv.Itoa(i)
		began := time.Now()
		c := st.clone(t, spec, id)
		made := time.Since(began)
		if out := c.MustSh(t, "cat /tmp/kept /dev/shm/d/f"); out != "kept\nshared\n" {
			t.Errorf("files of clone %d: %q", i, out)
		}
		if st.Info().Isolates {
			if out := c.MustSh(t, "uname -n"); out != spec.Hostname+"\n" {
				t.Errorf("clone %d calls itself %q, want Spec.Hostname %q", i, out, spec.Hostname)
			}
		}
		t.Logf("stood still for %v, %s on disk; a clone was made in %v and answered after %v", taken.Stood.Round(time.Millisecond),
			sandbox.FormatBytes(taken.Bytes), made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		n := func() int {
			v, err := strconv.Atoi(strings.TrimSpace(c.MustSh(t, "cat /tmp/n")))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if got := n(); got < before {
			t.Errorf("a program that had counted to %d has counted to %d in a clone", before, got)
		}
		was := n()
		eventually(t, "a program of a clone does not go on", func() bool { return n() > was })
		names[c.Ref()] = true
		generations[c.MustSh(t, "cat "+guestapi.GenerationFile)] = true
		receipt, err := c.Receipt(step(t))
		if err != nil {
			t.Fatalf("Receipt of a clone: %v", err)
		}
		for _, r := range receipt {
			if !r.Enforced && r.Asked != "" && !slices.Contains(st.s.h.Spec().AllowUnenforced, r.Name) {
				t.Errorf("a clone does not enforce %s: %+v", r.Name, r)
			}
		}
	}
	if len(names) != 2 || names[b.Ref()] {
		t.Errorf("the references of clones of %s are %v", b.Ref(), names)
	}
	if len(generations) != 2 {
		t.Errorf("the generations of two clones are %v", generations)
	}
	if out := b.MustSh(t, "cat /tmp/kept"); out != "later\n" {
		t.Errorf("the file of the box that was cloned: %q", out)
	}
}

// snapshotList lists and removes snapshots, also when their box and driver have ended.
func snapshotList(t *testing.T, s *suite) {
	st := s.open(t)
	first := s.openDir(t, st.dir)
	made, err := first.Create(step(t), s.h.Spec())
	if err != nil {
		t.Fatal(err)
	}
	b := NewBox(t, made)
	b.MustSh(t, "echo kept > /tmp/kept")
	id := sandbox.NewID()
	if _, err := driver.TakeSnapshot(step(t), b.Box, id); err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	k := st.keeper(t)
	if ids, err := k.Snapshots(step(t)); err != nil || !slices.Equal(ids, []string{id}) {
		t.Errorf("Snapshots: %q, %v, want %q", ids, err, id)
	}
	if refs, err := st.List(step(t)); err != nil || len(refs) != 0 {
		t.Errorf("List with a snapshot and no box: %q, %v", refs, err)
	}
	c := st.clone(t, s.h.Spec(), id)
	if err := k.RemoveSnapshot(step(t), id); err != nil {
		t.Errorf("RemoveSnapshot: %v", err)
	}
	if out := c.MustSh(t, "cat /tmp/kept"); out != "kept\n" {
		t.Errorf("a clone whose snapshot was removed: %q", out)
	}
	if ids, err := k.Snapshots(step(t)); err != nil || len(ids) != 0 {
		t.Errorf("Snapshots after RemoveSnapshot: %q, %v", ids, err)
	}
	if err := k.RemoveSnapshot(step(t), id); err != nil {
		t.Errorf("RemoveSnapshot of a removed snapshot: %v", err)
	}
	if _, err := k.CreateFrom(step(t), s.h.Spec(), id); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("CreateFrom a removed snapshot: %v, want not found", err)
	}
	if st.Info().Features.Rollback {
		if err := driver.Rollback(step(t), c.Box, id); sandbox.KindOf(err) != sandbox.NotFound || driver.IsGone(err) {
			t.Errorf("Rollback to a removed snapshot: %v, want not found", err)
		}
	}
	c.Answers(t, "after a rollback that failed")
}

// snapshotRollback gives a box an earlier state, twice.
func snapshotRollback(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	b.MustSh(t, "echo good > /tmp/kept")
	id, _ := st.snapshot(t, b)
	generations := map[string]bool{}
	for range 2 {
		b.MustSh(t, "echo bad > /tmp/kept; rm -rf /home/user/*")
		at := count()
		eventually(t, "the program does not count", func() bool { return count() > at+5 })
		began := time.Now()
		if err := driver.Rollback(step(t), b.Box, id); err != nil {
			t.Fatalf("Rollback: %v (hint: %s)", err, sandbox.HintOf(err))
		}
		if out := b.MustSh(t, "cat /tmp/kept"); out != "good\n" {
			t.Errorf("after a rollback: %q", out)
		}
		t.Logf("rolled back and answered in %v", time.Since(began).Round(time.Millisecond))
		generations[b.MustSh(t, "cat "+guestapi.GenerationFile)] = true
	}
	if len(generations) != 2 {
		t.Errorf("the generations after two rollbacks are %v", generations)
	}
	if in, ok, err := driver.ReadIncidents(step(t), b.Box); ok && !in.Alive || err != nil {
		t.Errorf("incidents after a rollback: %+v, %v", in, err)
	}
	if refs, err := st.List(step(t)); err != nil || !slices.Contains(refs, b.Ref()) {
		t.Errorf("List after a rollback: %q, %v", refs, err)
	}
}

// snapshotDiffers asks for boxes that a snapshot does not fit. Nothing is left of them.
func snapshotDiffers(t *testing.T, st *site) {
	b := st.box(t)
	id, _ := st.snapshot(t, b)
	for what, change := range map[string]func(*driver.Spec){
		"processes": func(s *driver.Spec) { s.Limits.Processes++ },
		"disk":      func(s *driver.Spec) { s.Limits.DiskBytes += 1 << 20 },
	} {
		spec := st.s.h.Spec()
		change(spec)
		if _, err := st.keeper(t).CreateFrom(step(t), spec, id); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("CreateFrom with another limit on %s: %v, want unavailable, with a hint", what, err)
		}
	}
	if refs, err := st.List(step(t)); err != nil || !slices.Equal(refs, []string{b.Ref()}) {
		t.Errorf("List after clones that were refused: %q, %v; want only %q", refs, err, b.Ref())
	}
}

// snapshotContext clones an interpreter: the clones have its values, draw different
// random numbers, and call what was registered.
func snapshotContext(t *testing.T, s *suite, st *site) {
	s.python(t)
	b := st.box(t)
	id := guestapi.DefaultContextID("python")
	b.Execute(t, inContext(id, `import glovebox, random, uuid
x = list(range(1000)); random.seed(1); told = []
glovebox.on_clone(lambda: told.append(1)); None`), nil)
	snapshot, taken := st.snapshot(t, b)
	const clones = 8
	began := time.Now()
	results := make([]string, clones)
	var all sync.WaitGroup
	for i := range clones {
		all.Go(func() {
			spec := st.s.h.Spec()
			made, err := st.keeper(t).CreateFrom(step(t), spec, snapshot)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { destroyClone(t, made) })
			box := NewBox(t, made)
			results[i] = box.Execute(t, inContext(id, "sum(x), len(told), random.random(), uuid.uuid4().hex"), nil).result
		})
	}
	all.Wait()
	t.Logf("stood still for %v, %s on disk; %d clones of a context answered within %v", taken.Stood.Round(time.Millisecond),
		sandbox.FormatBytes(taken.Bytes), clones, time.Since(began).Round(time.Millisecond))
	randoms, uuids := map[string]bool{}, map[string]bool{}
	for _, r := range results {
		f := strings.Split(strings.Trim(r, "()"), ", ")
		if len(f) != 4 || f[0] != "499500" || f[1] != "1" {
			t.Fatalf("a clone of a context answers %q", r)
		}
		randoms[f[2]], uuids[f[3]] = true, true
	}
	if len(randoms) != clones || len(uuids) != clones {
		t.Errorf("%d clones of a context drew %d different random numbers and %d UUIDs", clones, len(randoms), len(uuids))
	}
	if x := b.Execute(t, inContext(id, "sum(x), len(told)"), nil); x.result != "(499500, 0)" {
		t.Errorf("the context that was cloned answers %q", x.result)
	}
}

// snapshotWorkspace clones a box with another workspace, in which programs have the
// same files open.
func snapshotWorkspace(t *testing.T, st *site) {
	if !st.Info().Features.Workspace {
		t.Skip("the driver has no workspaces")
	}
	dir := workspaceDir(t)
	spec := st.s.h.Spec()
	spec.Workspace = dir
	b := st.boxOf(t, spec)
	b.MustSh(t, "setsid sh -c 'exec 3>>log; while :; do echo x >&3; sleep 0.02; done' >/dev/null 2>&1 </dev/null &")
	size := func(dir string) int64 {
		fi, err := os.Stat(filepath.Join(dir, "log"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	eventually(t, "the program writes nothing to the workspace", func() bool { return size(dir) > 0 })
	id, _ := st.snapshot(t, b)
	other := workspaceDir(t)
	spec = st.s.h.Spec()
	spec.Workspace = other
	if _, err := st.keeper(t).CreateFrom(step(t), spec, id); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), sandbox.WorkDir+"/log") {
		t.Errorf("CreateFrom without a file that a program has open: %v, want unavailable and the file", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(other, "log")
	if err := os.WriteFile(log, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(log, sandbox.UserUID, sandbox.UserUID); err != nil {
			t.Fatal(err)
		}
	}
	spec = st.s.h.Spec()
	spec.Workspace = other
	c := st.clone(t, spec, id)
	c.Answers(t, "after it was cloned with another workspace")
	before := size(other)
	eventually(t, "a cloned program does not go on in its own workspace", func() bool { return size(other) > before })
}

// snapshotNetwork clones a box with another policy.
func snapshotNetwork(t *testing.T, st *site) {
	if !st.Info().Features.Network {
		t.Skip("the driver has no networks")
	}
	spec := st.s.h.Spec()
	spec.Network = sandbox.NetworkInternet
	b := st.boxOf(t, spec)
	id, _ := st.snapshot(t, b)
	b.Answers(t, "after a snapshot with a network")
	for _, box := range []*Box{b, st.clone(t, func() *driver.Spec { s := st.s.h.Spec(); s.Network = "a.example"; return s }(), id)} {
		receipt, err := box.Receipt(step(t))
		if err != nil {
			t.Fatal(err)
		}
		want := string(sandbox.NetworkInternet)
		if box != b {
			want = "a.example"
		}
		for _, c := range receipt {
			if c.Name == sandbox.ControlNetwork && (!c.Enforced || c.Asked != want) {
				t.Errorf("the network policy: %+v, want %s enforced", c, want)
			}
		}
	}
}

package drivertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testDiskSnapshot checks that boxes made from a snapshot without memory have its files
// and nothing else, and that drivers without the feature refuse.
func testDiskSnapshot(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.DiskSnapshot {
		b := st.box(t)
		if _, err := driver.TakeDiskSnapshot(step(t), b.Box, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("DiskSnapshot is not declared in Info: want it refused as unsupported with a hint, got %v", err)
		}
		b.Answers(t, "after a snapshot that was refused")
		return
	}
	t.Run("Files", func(t *testing.T) { diskFiles(t, st) })
	t.Run("Programs", func(t *testing.T) { diskPrograms(t, st) })
	t.Run("List", func(t *testing.T) { diskList(t, s) })
	t.Run("Workspace", func(t *testing.T) { diskWorkspace(t, st) })
	t.Run("Cancel", func(t *testing.T) { diskCancel(t, st) })
}

// diskSnapshot takes a snapshot without memory, which is removed at the end of the test.
func (st *site) diskSnapshot(t testing.TB, b *Box) (string, driver.Snapshot) {
	t.Helper()
	id := sandbox.NewID()
	taken, err := driver.TakeDiskSnapshot(step(t), b.Box, id)
	if err != nil {
		t.Fatalf("SnapshotDisk, which Info declares: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	if taken.Bytes <= 0 || taken.Stood != 0 {
		t.Errorf("SnapshotDisk returns %+v: it has bytes, and the box did not stand still", taken)
	}
	t.Cleanup(func() { st.removeSnapshot(t, id) })
	return id, taken
}

func (st *site) removeSnapshot(t testing.TB, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	if err := st.keeper(t).RemoveSnapshot(ctx, id); err != nil {
		t.Errorf("RemoveSnapshot: %v", err)
	}
}

// variedFiles makes files of many kinds in the directories that programs can write.
const variedFiles = `set -e; for d in /data /tmp /home/user; do
	cd $d; mkdir -p v/dir/deep v/empty; cd v
	echo text > dir/deep/file; chmod 640 dir/deep/file; chmod 1770 dir
	echo run > program; chmod 755 program; touch -d @1000000000 program
	ln program linked; ln -s /no/where dangling; mkfifo fifo
	echo n > "$(printf 'new\nline')"; echo n > "$(printf 'not\377utf8')"; echo w > .wh.text
	truncate -s 3000000 hole; printf end >> hole; touch -d @1100000000 empty dir/deep dir
	: > nothing
done`

// listVaried lists the files of variedFiles with all that a snapshot keeps of them.
const listVaried = `for d in /data /tmp /home/user; do find $d/v -print0 | sort -z | while read -r -d '' f; do
	if [ "$f" = $d/v ]; then stat -c '%u:%g %a %n' "$f"; else stat -c '%u:%g %a %F %h %Y %N' "$f"; fi
	[ ! -f "$f" ] || [ -L "$f" ] || md5sum < "$f"
done; done`

// diskFiles makes two boxes from one snapshot.
func diskFiles(t *testing.T, st *site) {
	b := st.box(t)
	b.MustSh(t, "true")
	b.mustBash(t, variedFiles)
	want := b.mustBash(t, listVaried)
	if strings.Count(want, "\n") < 30 {
		t.Fatalf("the list is not one:\n%s", want)
	}
	id, taken := st.diskSnapshot(t, b)
	if _, err := driver.TakeDiskSnapshot(step(t), b.Box, id); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second snapshot of the same identifier: %v, want a conflict", err)
	}
	b.MustSh(t, "rm -rf /data/v; echo later > /tmp/later")
	refs := map[string]bool{b.Ref(): true}
	for _, name := range []string{"clone-0", "clone-1"} {
		spec := st.s.h.Spec()
		spec.Hostname = name
		began := time.Now()
		c := st.clone(t, spec, id)
		t.Logf("%s on disk; a clone was made in %v", sandbox.FormatBytes(taken.Bytes), time.Since(began).Round(time.Millisecond))
		if got := c.mustBash(t, listVaried); got != want {
			t.Errorf("files of a clone:\n%s\nwant:\n%s", got, want)
		}
		if out := c.MustSh(t, "ls /tmp; uname -n; head -n 1 "+guestapi.GenerationFile); out != "v\n"+name+"\n1\n" {
			t.Errorf("another file, name or generation of a clone: %q", out)
		}
		refs[c.Ref()] = true
		receipt, err := c.Receipt(step(t))
		if err != nil {
			t.Fatalf("Receipt of a clone: %v", err)
		}
		for _, r := range receipt.Unenforced() {
			if !slices.Contains(st.s.h.Spec().AllowUnenforced, r) {
				t.Errorf("a clone does not enforce %s", r)
			}
		}
	}
	if len(refs) != 3 {
		t.Errorf("the references of a box and two clones are %v", refs)
	}
	if out := b.MustSh(t, "ls -d /data/v /tmp/later 2>&1 | wc -l; cat /tmp/later"); !strings.HasSuffix(out, "later\n") {
		t.Errorf("the box that was cloned: %q", out)
	}
	b.Answers(t, "after it was cloned")
}

// mustBash is MustSh for a shell that reads names with newlines.
func (b *Box) mustBash(t testing.TB, script string) string {
	t.Helper()
	return b.MustSh(t, "exec bash -c "+quoteShell(script))
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// diskPrograms checks that a snapshot promises no programs: it is not taken for one with
// memory, and no box is rolled back to it.
func diskPrograms(t *testing.T, st *site) {
	b := st.box(t)
	count := b.counts(t)
	b.MustSh(t, "echo shared > /dev/shm/f")
	before := count()
	id, _ := st.diskSnapshot(t, b)
	eventually(t, "a program does not go on after a snapshot", func() bool { return count() > before })
	c := st.clone(t, st.s.h.Spec(), id)
	n := c.MustSh(t, "cat /tmp/n; ls /dev/shm")
	if again := c.MustSh(t, "cat /tmp/n; ls /dev/shm"); n != again || strings.Contains(n, "f") {
		t.Errorf("a clone without memory has a program or shared memory: %q, then %q", n, again)
	}
	if !st.Info().Features.Snapshot {
		if _, err := driver.TakeSnapshot(step(t), b.Box, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "--disk") {
			t.Errorf("a snapshot with memory: %v, want it refused as unsupported, with a hint about --disk", err)
		}
	}
	if err := driver.Rollback(step(t), c.Box, id); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("Rollback to a snapshot without memory: %v, want it refused as unsupported with a hint", err)
	}
	b.Answers(t, "after refusals")
	c.Answers(t, "after refusals")
}

// diskList lists and removes snapshots, also when their box and driver have ended.
func diskList(t *testing.T, s *suite) {
	st := s.open(t)
	first := s.openDir(t, st.dir)
	made, err := first.Create(step(t), s.h.Spec())
	if err != nil {
		t.Fatal(err)
	}
	b := NewBox(t, made)
	b.MustSh(t, "echo kept > /tmp/kept")
	id := sandbox.NewID()
	if _, err := driver.TakeDiskSnapshot(step(t), b.Box, id); err != nil {
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
	other := &site{Driver: s.openDir(t, stateDir(t)), s: s}
	if ids, err := other.keeper(t).Snapshots(step(t)); err != nil || len(ids) != 0 {
		t.Errorf("Snapshots of another state directory: %q, %v", ids, err)
	}
	if _, err := other.keeper(t).CreateFrom(step(t), s.h.Spec(), id); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("CreateFrom a snapshot of another state directory: %v, want not found", err)
	}
	other.removeSnapshot(t, id)
	c := st.clone(t, s.h.Spec(), id)
	// A clone has snapshots of its own, which have the files of the first.
	again, _ := st.diskSnapshot(t, c)
	st.removeSnapshot(t, id)
	if out := c.MustSh(t, "cat /tmp/kept"); out != "kept\n" {
		t.Errorf("a clone whose snapshot was removed: %q", out)
	}
	if out := st.clone(t, s.h.Spec(), again).MustSh(t, "cat /tmp/kept"); out != "kept\n" {
		t.Errorf("a clone of a clone: %q", out)
	}
	st.removeSnapshot(t, again)
	if ids, err := k.Snapshots(step(t)); err != nil || len(ids) != 0 {
		t.Errorf("Snapshots after RemoveSnapshot: %q, %v", ids, err)
	}
	st.removeSnapshot(t, id) // there is none
	if _, err := k.CreateFrom(step(t), s.h.Spec(), id); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("CreateFrom a removed snapshot: %v, want not found", err)
	}
}

// diskWorkspace checks that the workspace is not in a snapshot.
func diskWorkspace(t *testing.T, st *site) {
	if !st.Info().Features.Workspace {
		t.Skip("the driver has no workspaces")
	}
	spec := st.s.h.Spec()
	spec.Workspace = workspaceDir(t)
	b := st.boxOf(t, spec)
	b.MustSh(t, "echo mine > /data/mine; echo kept > /tmp/kept")
	id, _ := st.diskSnapshot(t, b)
	if _, err := st.keeper(t).CreateFrom(step(t), st.s.h.Spec(), id); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("CreateFrom without a workspace: %v, want unavailable, with a hint", err)
	}
	if refs, err := st.List(step(t)); err != nil || !slices.Equal(refs, []string{b.Ref()}) {
		t.Errorf("List after a clone that was refused: %q, %v; want only %q", refs, err, b.Ref())
	}
	spec = st.s.h.Spec()
	spec.Workspace = workspaceDir(t)
	if out := st.clone(t, spec, id).MustSh(t, "cat /tmp/kept; ls /data"); out != "kept\n" {
		t.Errorf("files of a clone with another workspace: %q", out)
	}
}

// diskCancel ends the context of a caller at once, and later. There is no snapshot and no
// box, or a whole one.
func diskCancel(t *testing.T, st *site) {
	b := st.box(t)
	b.MustSh(t, "head -c 20000000 /dev/urandom > /tmp/large")
	for _, after := range []time.Duration{0, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(step(t), after)
		id := sandbox.NewID()
		_, err := driver.TakeDiskSnapshot(ctx, b.Box, id)
		cancel()
		ids, lerr := st.keeper(t).Snapshots(step(t))
		if lerr != nil || (err == nil) != slices.Contains(ids, id) {
			t.Errorf("SnapshotDisk whose context ended after %v: %v, and Snapshots returns %q, %v", after, err, ids, lerr)
		}
		st.removeSnapshot(t, id)
	}
	b.Answers(t, "after a snapshot whose context ended")
	id, _ := st.diskSnapshot(t, b)
	ctx, cancel := context.WithTimeout(step(t), 20*time.Millisecond)
	defer cancel()
	if c, err := st.keeper(t).CreateFrom(ctx, st.s.h.Spec(), id); err == nil {
		destroyClone(t, c)
	}
	if refs, err := st.List(step(t)); err != nil || !slices.Equal(refs, []string{b.Ref()}) {
		t.Errorf("List after a clone whose context ended: %q, %v; want only %q", refs, err, b.Ref())
	}
}

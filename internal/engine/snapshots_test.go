package engine

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A snapshotDriver keeps snapshots of a world's boxes: what their ref was. specs are those
// of boxes that were made of one.
type snapshotDriver struct {
	savingDriver
	kept *keptSnapshots
}

type keptSnapshots struct {
	mu sync.Mutex
	// taking and rolling, if not nil, are called while a snapshot is taken, and while a
	// box returns to one.
	taking, rolling func()
	of              map[string]string // the box that each snapshot is of
	specs           []driver.Spec
	rolls           []string
	fails           error
}

func (d snapshotDriver) Info() driver.Info {
	info := d.savingDriver.Info()
	info.Features.Snapshot, info.Features.Rollback = true, true
	return info
}

type snapshotBox struct {
	*worldBox
	kept *keptSnapshots
}

func (d snapshotDriver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	b, err := d.savingDriver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return snapshotBox{b.(*worldBox), d.kept}, nil
}

func (d snapshotDriver) Attach(ctx context.Context, ref string) (driver.Box, error) {
	b, err := d.savingDriver.Attach(ctx, ref)
	if err != nil {
		return nil, err
	}
	return snapshotBox{b.(*worldBox), d.kept}, nil
}

func (b snapshotBox) Snapshot(_ context.Context, id string) (driver.Snapshot, error) {
	if f := b.kept.taking; f != nil {
		f()
	}
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	b.kept.of[id] = b.ref
	return driver.Snapshot{Bytes: 10, Stood: time.Millisecond}, b.kept.fails
}

func (b snapshotBox) Rollback(_ context.Context, id string) error {
	if f := b.kept.rolling; f != nil {
		f()
	}
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	b.kept.rolls = append(b.kept.rolls, id)
	return b.kept.fails
}

func (d snapshotDriver) CreateFrom(ctx context.Context, spec *driver.Spec, id string) (driver.Box, error) {
	d.kept.mu.Lock()
	d.kept.specs = append(d.kept.specs, *spec)
	_, known := d.kept.of[id]
	err := d.kept.fails
	d.kept.mu.Unlock()
	if err != nil || !known {
		return nil, sandbox.Errorf(sandbox.Unavailable, "no state: %v", err)
	}
	return d.Create(ctx, spec)
}

func (d snapshotDriver) Snapshots(context.Context) ([]string, error) {
	d.kept.mu.Lock()
	defer d.kept.mu.Unlock()
	return slices.Sorted(maps.Keys(d.kept.of)), nil
}

func (d snapshotDriver) RemoveSnapshot(_ context.Context, id string) error {
	d.kept.mu.Lock()
	defer d.kept.mu.Unlock()
	delete(d.kept.of, id)
	return nil
}

// keeping returns a driver option for a world with snapshots.
func keeping(w *world, more ...func(*Options)) (*keptSnapshots, func(*Options)) {
	kept := &keptSnapshots{of: map[string]string{}}
	return kept, func(o *Options) {
		o.Driver = snapshotDriver{savingDriver{worldDriver{w}}, kept}
		for _, f := range more {
			f(o)
		}
	}
}

// TestSnapshots takes, lists, uses and removes snapshots.
func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{Name: "job", Labels: map[string]string{"a": "b"}, Limits: sandbox.Limits{Processes: 33}})
		time.Sleep(time.Minute) // it rests
		first, err := e.TakeSnapshot(ctx, alice, s.ID, "good")
		if err != nil || !sandbox.ValidSnapshotID(first.ID) || first.Bytes != 10 || first.Sandbox != s.ID || first.Parent != "" || first.Expires.Sub(first.Created) != 7*24*time.Hour {
			t.Fatalf("%+v, %v", first, err)
		}
		second, err := e.TakeSnapshot(ctx, alice, s.ID, "")
		if err != nil || second.Parent != first.ID {
			t.Fatalf("%+v, %v", second, err)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 2 {
			t.Errorf("list %v, %v", list, err)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{Name: "good", Sandbox: s.ID}); err != nil || len(list) != 1 || list[0].ID != first.ID {
			t.Errorf("list by name %v, %v", list, err)
		}

		// Another principal has none of it.
		if list, err := e.Snapshots(ctx, bob, sandbox.SnapshotFilter{}); err != nil || len(list) != 0 {
			t.Errorf("another principal lists %v, %v", list, err)
		}
		for what, err := range map[string]error{
			"take":     second1(e.TakeSnapshot(ctx, bob, s.ID, "")),
			"rollback": second1(e.Rollback(ctx, bob, s.ID, first.ID, false)),
			"fork":     second1(e.Fork(ctx, bob, s.ID, sandbox.ForkRequest{})),
			"remove":   e.RemoveSnapshot(ctx, bob, first.ID),
			"create":   second1(e.Create(ctx, bob, sandbox.CreateRequest{Snapshot: first.ID})),
		} {
			if sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("%s by another principal: %v, want not found", what, err)
			}
		}

		// A sandbox of it has its limits.
		child, err := e.Create(ctx, alice, sandbox.CreateRequest{Snapshot: "good"})
		if err != nil || child.Limits.Processes != 33 || child.ID == s.ID || kept.specs[0].ID != child.ID {
			t.Fatalf("%+v, %v", child, err)
		}
		third, err := e.TakeSnapshot(ctx, alice, child.ID, "")
		if err != nil || third.Parent != first.ID {
			t.Errorf("a snapshot of the child has the parent %s, %v", third.Parent, err)
		}
		for what, req := range map[string]sandbox.CreateRequest{
			"image":          {Snapshot: "good", Image: "x"},
			"workspace":      {Snapshot: "good", Workspace: "x"},
			"processes":      {Snapshot: "good", Limits: sandbox.Limits{Processes: 34}},
			"copy_workspace": {CopyWorkspace: true},
		} {
			if _, err := e.Create(ctx, alice, req); sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), what) || sandbox.HintOf(err) == "" {
				t.Errorf("%s: %v, want invalid with the name and a hint", what, err)
			}
		}

		// Removal makes its children those of its parent.
		if err := e.RemoveSnapshot(ctx, alice, first.ID); err != nil {
			t.Fatal(err)
		}
		list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{})
		if err != nil || len(list) != 2 || list[0].Parent != "" || list[1].Parent != "" || len(kept.of) != 2 {
			t.Errorf("after a removal %+v, %v, states %v", list, err, kept.of)
		}
		if _, err := e.Create(ctx, alice, sandbox.CreateRequest{Snapshot: "good"}); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("create of a removed one: %v", err)
		}
	})
}

func second1[T any](_ T, err error) error { return err }

// TestSnapshotDuringRun refuses while a run goes on, unless it is to end.
func TestSnapshotDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		snap, err := e.TakeSnapshot(ctx, alice, s.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
			t.Errorf("snapshot during a run: %v", err)
		}
		if _, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{}); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("fork during a run: %v", err)
		}
		if _, err := e.Rollback(ctx, alice, s.ID, snap.ID, false); sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" || len(kept.rolls) > 0 {
			t.Errorf("rollback during a run: %v", err)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 1 || len(kept.of) != 1 {
			t.Errorf("what was refused left %v, %v, states %v", list, err, kept.of)
		}
		if _, err := e.Rollback(ctx, alice, s.ID, snap.ID, true); err != nil || len(kept.rolls) != 1 {
			t.Errorf("rollback that ends runs: %v", err)
		}
		if got, err := e.Wait(ctx, alice, r.ID); err != nil || got.Status != sandbox.RunFinished {
			t.Errorf("the run is %v, %v", got.Status, err)
		}
	})
}

// TestFork makes copies, of which some fail.
func TestFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w, func(o *Options) { o.MaxSandboxes, o.EvictAfter = 4, 0 })
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{Name: "job", Env: map[string]string{"K": "v"}, Labels: map[string]string{"a": "b"}})
		for _, count := range []int{-1, 101} {
			if _, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{Count: count}); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
				t.Errorf("%d copies: %v, want invalid", count, err)
			}
		}
		forks, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{Count: 5, TTL: time.Hour})
		if err != nil || len(forks) != 5 {
			t.Fatalf("%v, %v", forks, err)
		}
		ids, names, failed := map[string]bool{s.ID: true}, map[string]bool{}, 0
		for _, f := range forks {
			if f.Err != nil {
				failed++
				if sandbox.KindOf(f.Err) != sandbox.Exhausted {
					t.Errorf("a copy beyond the limit: %v", f.Err)
				}
				continue
			}
			ids[f.Sandbox.ID], names[f.Sandbox.Name] = true, true
			if f.Sandbox.Labels["a"] != "b" || e.live(f.Sandbox.ID).env["K"] != "v" || f.Sandbox.Ends.IsZero() {
				t.Errorf("a copy is %+v", f.Sandbox)
			}
		}
		if failed != 2 || len(ids) != 4 || len(names) != 3 {
			t.Errorf("%d failed, %v, %v", failed, ids, names)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 0 || len(kept.of) != 0 {
			t.Errorf("a fork left %v, %v, %v", list, err, kept.of)
		}
		if snap, err := e.TakeSnapshot(ctx, alice, s.ID, ""); err != nil || snap.Parent != "" {
			t.Errorf("a snapshot after a fork: %+v, %v", snap, err)
		}
	})
}

// TestSnapshotQuota bounds the number and the bytes.
func TestSnapshotQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w, func(o *Options) { o.Snapshots = snapshot.Limits{Count: 3, Bytes: 25} })
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		for range 2 {
			if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" || len(kept.of) != 2 {
			t.Errorf("with 30 of 25 bytes: %v, states %v", err, kept.of)
		}
		if _, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{}); sandbox.KindOf(err) != sandbox.Exhausted || len(kept.of) != 2 {
			t.Errorf("a fork with 30 of 25 bytes: %v", err)
		}
		kept.fails = sandbox.Errorf(sandbox.Conflict, "held")
		if _, err := e.Rollback(ctx, alice, s.ID, "no such", false); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("rollback to nothing: %v", err)
		}
	})
}

// TestSnapshotSweep removes what a killed process left, and what is old.
func TestSnapshotSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		good, err := e.TakeSnapshot(ctx, alice, s.ID, "good")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the list is in the order of time
		gone, err := e.TakeSnapshot(ctx, alice, s.ID, "gone")
		if err != nil {
			t.Fatal(err)
		}
		delete(kept.of, sandbox.DriverSnapshot(gone.ID))
		kept.of[sandbox.NewID()] = "a state without a record"
		// The pool of another server, which lives, has a prototype.
		other, err := e.store.RegisterOwner(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		prototype := sandbox.NewID()
		if err := other.AddWarm(ctx, prototype); err != nil {
			t.Fatal(err)
		}
		kept.of[prototype] = "a prototype"
		dead := store.Snapshot{Principal: alice, Owner: "dead", Driver: e.name}
		dead.ID, dead.State, dead.Created = sandbox.NewSnapshotID(), sandbox.SnapshotMaking, e.now()
		if err := e.store.AddSnapshot(ctx, &dead, 100, 1<<30); err != nil {
			t.Fatal(err)
		}
		kept.of[sandbox.DriverSnapshot(dead.ID)] = "incomplete"
		// Of two that this engine makes, one is too old to be complete ever.
		var making []string
		for _, age := range []time.Duration{0, time.Hour} {
			r := store.Snapshot{Principal: "bob", Owner: e.owner.ID(), Driver: e.name}
			r.ID, r.State, r.Created = sandbox.NewSnapshotID(), sandbox.SnapshotMaking, e.now().Add(-age)
			if err := e.store.AddSnapshot(ctx, &r, 100, 1<<30); err != nil {
				t.Fatal(err)
			}
			making = append(making, r.ID)
		}
		time.Sleep(time.Second)
		e.mustSweep(t)
		if recs, err := e.store.Snapshots(ctx, "bob"); err != nil || len(recs) != 1 || recs[0].ID != making[0] {
			t.Errorf("those that are being made: %+v, %v; want %s", recs, err, making[0])
		}
		list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{})
		if err != nil || len(list) != 2 || list[0].State != sandbox.SnapshotLost || list[1].ID != good.ID {
			t.Errorf("after a sweep %+v, %v", list, err)
		}
		if want := slices.Sorted(slices.Values([]string{sandbox.DriverSnapshot(good.ID), prototype})); !slices.Equal(slices.Sorted(maps.Keys(kept.of)), want) {
			t.Errorf("the states are %v, want %v", kept.of, want)
		}
		if err := other.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Create(ctx, alice, sandbox.CreateRequest{Snapshot: "gone"}); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("create of a lost one: %v", err)
		}
		if err := e.RemoveSnapshot(ctx, alice, "gone"); err != nil {
			t.Error(err)
		}
		time.Sleep(8 * 24 * time.Hour)
		e.mustSweep(t)
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 0 || len(kept.of) != 0 {
			t.Errorf("old ones: %v, %v, states %v", list, err, kept.of)
		}
	})
}

// TestSnapshotUnsupported: a driver without snapshots refuses, and leaves no record.
func TestSnapshotUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		e := openWorld(t, w, t.TempDir(), func(*Options) {})
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("%v, want unsupported with a hint", err)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

// TestSnapshotMetrics counts what was done with snapshots, and what failed.
func TestSnapshotMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx, set := newWorld(), t.Context(), metrics.New("v1", "world")
		kept, options := keeping(w, func(o *Options) { o.Metrics = set })
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		snap, err := e.TakeSnapshot(ctx, alice, s.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Rollback(ctx, alice, s.ID, snap.ID, false); err != nil {
			t.Fatal(err)
		}
		kept.fails = sandbox.Errorf(sandbox.Conflict, "held")
		if _, err := e.Rollback(ctx, alice, s.ID, snap.ID, false); err == nil {
			t.Error("a rollback that fails has no error")
		}
		rec := httptest.NewRecorder()
		set.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, want := range []string{
			`snapshot_actions_total{action="take",result="ok"} 2`, // one for the fork
			`snapshot_actions_total{action="fork",result="ok"} 1`,
			`snapshot_actions_total{action="rollback",result="ok"} 1`,
			`snapshot_actions_total{action="rollback",result="conflict"} 1`,
			`snapshot_stood_seconds_count 2`,
		} {
			if !strings.Contains(rec.Body.String(), want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	})
}

// A diskDriver keeps only snapshots without memory.
type diskDriver struct {
	savingDriver
	kept *keptSnapshots
}

func (d diskDriver) Info() driver.Info {
	info := d.savingDriver.Info()
	info.Features.Save, info.Features.DiskSnapshot = false, true
	return info
}

type diskBox struct {
	*worldBox
	kept *keptSnapshots
}

func (d diskDriver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	b, err := d.savingDriver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return diskBox{b.(*worldBox), d.kept}, nil
}

func (b diskBox) SnapshotDisk(ctx context.Context, id string) (driver.Snapshot, error) {
	return snapshotBox(b).Snapshot(ctx, id)
}

func (d diskDriver) CreateFrom(ctx context.Context, spec *driver.Spec, id string) (driver.Box, error) {
	b, err := snapshotDriver(d).CreateFrom(ctx, spec, id)
	if err != nil {
		return nil, err
	}
	return diskBox(b.(snapshotBox)), nil
}

func (d diskDriver) Snapshots(ctx context.Context) ([]string, error) {
	return snapshotDriver(d).Snapshots(ctx)
}

func (d diskDriver) RemoveSnapshot(ctx context.Context, id string) error {
	return snapshotDriver(d).RemoveSnapshot(ctx, id)
}

// TestDiskSnapshots uses a driver that keeps no memory: no request that promises memory
// gets a snapshot without it.
func TestDiskSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept := &keptSnapshots{of: map[string]string{}}
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = diskDriver{savingDriver{worldDriver{w}}, kept} })
		s := e.mustCreate(t, sandbox.CreateRequest{Name: "job"})
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "--disk") {
			t.Errorf("a snapshot with memory: %v, want it refused with a hint", err)
		}
		if _, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{}); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("a fork with memory: %v, want it refused", err)
		}
		if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 0 || len(kept.of) != 0 {
			t.Errorf("after refusals: %+v, %v, %v", list, err, kept.of)
		}
		taken, err := e.TakeDiskSnapshot(ctx, alice, s.ID, "installed")
		if err != nil || !taken.Disk {
			t.Fatalf("%+v, %v", taken, err)
		}
		if got, err := e.Snapshot(ctx, alice, "installed"); err != nil || !got.Disk || got.ID != taken.ID {
			t.Errorf("the record is %+v, %v", got, err)
		}
		made := e.mustCreate(t, sandbox.CreateRequest{Snapshot: taken.ID})
		if made.Image != s.Image {
			t.Errorf("a sandbox of it has the image %s, want %s", made.Image, s.Image)
		}
		forks, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{Count: 2, Disk: true})
		if err != nil || len(forks) != 2 || forks[0].Err != nil || forks[1].Err != nil {
			t.Errorf("forks %+v, %v", forks, err)
		}
		run, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Rollback(ctx, alice, s.ID, taken.ID, true); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("a rollback: %v, want it refused with a hint", err)
		}
		if _, err := e.TakeDiskSnapshot(ctx, alice, s.ID, ""); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("a snapshot after a rollback that was refused: %v; the run should go on", err)
		}
		if _, err := e.StopRun(ctx, alice, run.ID); err != nil {
			t.Error(err)
		}
		if err := e.RemoveSnapshot(ctx, alice, taken.ID); err != nil || len(kept.of) != 0 {
			t.Errorf("%v, and the driver has %v", err, kept.of)
		}
	})
}

// A forkingDriver keeps snapshots with memory, and its boxes cannot return to them. E2B's
// cloud is like that, and reports no bytes and no times.
type forkingDriver struct{ snapshotDriver }

func (d forkingDriver) Info() driver.Info {
	info := d.snapshotDriver.Info()
	info.Features.Save, info.Features.Rollback = false, false
	return info
}

// TestNoWayBack refuses rollbacks before it ends runs.
func TestNoWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept := &keptSnapshots{of: map[string]string{}}
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = forkingDriver{snapshotDriver{savingDriver{worldDriver{w}}, kept}} })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		taken, err := e.TakeSnapshot(ctx, alice, s.ID, "good")
		if err != nil {
			t.Fatal(err)
		}
		if forks, err := e.Fork(ctx, alice, s.ID, sandbox.ForkRequest{}); err != nil || forks[0].Err != nil {
			t.Errorf("fork: %+v, %v", forks, err)
		}
		run := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}})
		if _, err := e.Rollback(ctx, alice, s.ID, taken.ID, true); sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "make another sandbox") || len(kept.rolls) > 0 {
			t.Errorf("rollback: %v (hint %q), %v", err, sandbox.HintOf(err), kept.rolls)
		}
		if got, err := e.store.Run(ctx, run.ID); err != nil || got.Status == sandbox.RunFinished {
			t.Errorf("the run after a rollback that was refused: %+v, %v", got, err)
		}
		if _, err := e.StopRun(ctx, alice, run.ID); err != nil {
			t.Error(err)
		}
		_, err = e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}, RollbackOnFailure: true})
		if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "rollback_on_failure") || sandbox.HintOf(err) == "" {
			t.Errorf("rollback_on_failure: %v", err)
		}
	})
}

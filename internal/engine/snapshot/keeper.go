// Package snapshot keeps snapshots of sandboxes for their principals: it takes them,
// makes sandboxes of them, gives a sandbox the state of one, and removes them.
//
// The engine makes one [Keeper], and has its methods. The driver keeps the states, and
// the store a record of each. A record is written before its state and removed after
// it, so that a sweep can tell what a killed process left.
package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Limits bound the snapshots of each principal. Zero fields take their defaults.
type Limits struct {
	Count int           // default: 100
	Bytes int64         // default: 16 GiB
	TTL   time.Duration // after which a snapshot is removed; default: 7 days
}

func (l Limits) withDefaults() Limits {
	if l.Count == 0 {
		l.Count = 100
	}
	if l.Bytes == 0 {
		l.Bytes = 16 << 30
	}
	if l.TTL == 0 {
		l.TTL = 7 * 24 * time.Hour
	}
	return l
}

// A Sandbox is a running sandbox, as the engine has it.
type Sandbox interface {
	ID() string
	// Setup returns what the sandbox was made with, and Env its environment.
	Setup() store.SnapshotSetup
	Env() map[string]string
	// Still calls do while nothing uses the sandbox. The error is of kind Conflict if
	// something does. If do finds the box gone, the sandbox is stopped.
	Still(ctx context.Context, do func(context.Context, driver.Box) error) error
	// EndRuns ends the sandbox's runs.
	EndRuns(ctx context.Context) error
}

// Options configure a Keeper. All fields are required, except Metrics.
type Options struct {
	Driver  driver.Driver
	Name    string // of the driver
	Owner   string // this process
	Records *store.Store
	Log     *slog.Logger
	Metrics *metrics.Set
	Now     func() time.Time
	Limits  Limits

	// Find returns a running sandbox of a principal, and View what its owner sees.
	Find func(ctx context.Context, p sandbox.Principal, id string) (Sandbox, error)
	View func(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	// Check returns an error of kind Exhausted if a principal may take no snapshot.
	Check func(ctx context.Context, p sandbox.Principal) error
	// Create makes a sandbox, which asks From for what a snapshot has.
	Create func(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	// CopyWorkspace copies a workspace to a new one, and RemoveWorkspace removes one.
	CopyWorkspace   func(ctx context.Context, p sandbox.Principal, from, to string) error
	RemoveWorkspace func(ctx context.Context, p sandbox.Principal, name string) error
}

// A Keeper keeps snapshots.
type Keeper struct{ opts Options }

// New returns a Keeper.
func New(o Options) *Keeper {
	o.Limits = o.Limits.withDefaults()
	return &Keeper{o}
}

// takeTime bounds the work on a state that no caller may interrupt half done.
const takeTime = 5 * time.Minute

// maxName bounds the name of a snapshot, in bytes.
const maxName = 200

func checkName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: %s is not a line of text of at most %d bytes", excerpt.Quote(name), maxName), "use a shorter name")
	}
	if sandbox.ValidSnapshotID(name) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: %s is an identifier of a snapshot", name), "use another name")
	}
	return nil
}

// TakeSnapshot keeps the state of a sandbox: its memory, its programs and its files
// outside of the workspace. The sandbox goes on; its connections to the network end.
// The error is of kind Conflict while the sandbox has runs, of kind Exhausted if the
// principal may have no further snapshot, and of kind Unsupported if the driver keeps
// none, or none of this sandbox.
func (k *Keeper) TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	return k.takeNamed(ctx, p, id, name, false)
}

// TakeDiskSnapshot is [Keeper.TakeSnapshot] for the files that programs changed, without
// memory and programs. Connections to the network do not end.
func (k *Keeper) TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	return k.takeNamed(ctx, p, id, name, true)
}

func (k *Keeper) takeNamed(ctx context.Context, p sandbox.Principal, id, name string, disk bool) (sandbox.Snapshot, error) {
	const op = "take snapshot"
	if err := checkName(name); err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	b, err := k.opts.Find(ctx, p, id)
	if err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	rec, err := k.take(ctx, p, b, store.Snapshot{Snapshot: sandbox.Snapshot{Name: name, Disk: disk}})
	return rec.Snapshot, sandbox.Wrap(err, op, "")
}

// take takes a snapshot, of which rec has the name and the kind.
func (k *Keeper) take(ctx context.Context, p sandbox.Principal, b Sandbox, rec store.Snapshot) (_ store.Snapshot, err error) {
	defer k.measure(metrics.SnapshotTaken, time.Now(), &err)
	if _, err := driver.Snapshots(k.opts.Driver); err != nil {
		return store.Snapshot{}, err
	}
	rec.Principal, rec.Owner, rec.Driver, rec.Setup = p, k.opts.Owner, k.opts.Name, b.Setup()
	rec.ID, rec.State, rec.Sandbox, rec.Created = sandbox.NewSnapshotID(), sandbox.SnapshotMaking, b.ID(), k.opts.Now()
	rec.Setup.Disk = rec.Disk
	rec.Reserved = rec.Setup.Limits.MemoryBytes + rec.Setup.Limits.DiskBytes
	rec.Image, rec.Workspace, rec.Labels = rec.Setup.Image, rec.Setup.Workspace, rec.Setup.Labels
	if err := k.opts.Check(ctx, p); err != nil {
		return store.Snapshot{}, err
	}
	limits := k.opts.Limits
	if err := k.opts.Records.AddSnapshot(ctx, &rec, limits.Count, limits.Bytes); err != nil {
		return store.Snapshot{}, err
	}
	var taken driver.Snapshot
	err = b.Still(ctx, func(ctx context.Context, box driver.Box) (err error) {
		take := driver.TakeSnapshot
		if rec.Disk {
			take = driver.TakeDiskSnapshot
		}
		taken, err = take(ctx, box, sandbox.DriverSnapshot(rec.ID))
		return err
	})
	if err == nil {
		rec.Bytes, rec.Build = taken.Bytes, taken.Build
		err = k.opts.Records.KeptSnapshot(context.WithoutCancel(ctx), rec, limits.Bytes)
	}
	if err != nil {
		return store.Snapshot{}, errors.Join(err, k.remove(ctx, rec))
	}
	rec.State = sandbox.SnapshotKept
	if taken.Stood > 0 {
		k.opts.Metrics.SnapshotStood(taken.Stood)
	}
	k.opts.Log.Info("took snapshot", "snapshot", rec.ID, "sandbox", rec.Sandbox, "bytes", taken.Bytes, "stood", taken.Stood)
	return k.seen(rec), nil
}

// measure counts an action that began at that time, and how it ended.
func (k *Keeper) measure(a metrics.SnapshotAction, begun time.Time, err *error) {
	k.opts.Metrics.SnapshotDone(a, time.Since(begun), *err)
}

// seen adds to a record what follows from it.
func (k *Keeper) seen(r store.Snapshot) store.Snapshot {
	r.Expires = r.Created.Add(k.opts.Limits.TTL)
	return r
}

// Snapshots returns the snapshots of p that filter selects, the newest first.
func (k *Keeper) Snapshots(ctx context.Context, p sandbox.Principal, filter sandbox.SnapshotFilter) ([]sandbox.Snapshot, error) {
	const op = "list snapshots"
	if err := request.CheckPrincipal(p); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := k.opts.Records.Snapshots(ctx, p)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Snapshot, 0, len(recs))
	for _, r := range recs {
		if !r.Internal && (filter.Sandbox == "" || r.Sandbox == filter.Sandbox) && (filter.Name == "" || r.Name == filter.Name) {
			list = append(list, k.seen(r).Snapshot)
		}
	}
	return list, nil
}

// Snapshot returns a snapshot of p by its identifier, or the newest one of that name.
// The error is of kind NotFound if there is none.
func (k *Keeper) Snapshot(ctx context.Context, p sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	r, err := k.find(ctx, p, ref)
	return k.seen(r).Snapshot, err
}

func (k *Keeper) find(ctx context.Context, p sandbox.Principal, ref string) (store.Snapshot, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return store.Snapshot{}, err
	}
	recs, err := k.opts.Records.Snapshots(ctx, p)
	if err != nil {
		return store.Snapshot{}, err
	}
	for _, r := range recs {
		if !r.Internal && (r.ID == ref || r.Name == ref && ref != "") {
			return r, nil
		}
	}
	return store.Snapshot{}, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "snapshot: there is no snapshot %s", excerpt.Quote(ref)), "list your snapshots to see which there are")
}

// usable is find for a snapshot whose state is needed.
func (k *Keeper) usable(ctx context.Context, p sandbox.Principal, ref string) (store.Snapshot, error) {
	r, err := k.find(ctx, p, ref)
	switch {
	case err != nil:
		return r, err
	case r.State == sandbox.SnapshotMaking:
		return r, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "snapshot %s is being made", r.ID), "try again in a moment")
	case r.State == sandbox.SnapshotLost:
		return r, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the files of snapshot %s are gone from the state directory", r.ID), "delete it, and take another")
	case r.Driver != k.opts.Name:
		return r, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "snapshot %s was made by driver %s, and this is %s", r.ID, r.Driver, k.opts.Name), "use --driver %s", r.Driver)
	}
	return r, nil
}

// RemoveSnapshot removes a snapshot. Sandboxes that were made of it are not touched,
// and its children become those of its parent.
func (k *Keeper) RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error {
	const op = "delete snapshot"
	r, err := k.find(ctx, p, ref)
	if err == nil && r.State == sandbox.SnapshotMaking {
		_, err = k.usable(ctx, p, ref)
	}
	if err == nil && r.Driver != k.opts.Name {
		_, err = k.usable(ctx, p, ref)
	}
	if err == nil {
		err = k.remove(ctx, r)
	}
	return sandbox.Wrap(err, op, "")
}

func (k *Keeper) remove(ctx context.Context, r store.Snapshot) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeTime)
	defer cancel()
	d, err := driver.Snapshots(k.opts.Driver)
	if err != nil {
		return err
	}
	if err := d.RemoveSnapshot(ctx, sandbox.DriverSnapshot(r.ID)); err != nil {
		return err
	}
	return k.opts.Records.RemoveSnapshot(ctx, r.ID)
}

// Rollback gives a sandbox the state of a snapshot of p. What its programs did since is
// lost, except in its workspace. The error is of kind Conflict while the sandbox has
// runs, unless endRuns ends them. If the snapshot does not fit, the sandbox goes on as
// it was.
func (k *Keeper) Rollback(ctx context.Context, p sandbox.Principal, id, ref string, endRuns bool) (_ sandbox.Snapshot, err error) {
	const op = "roll back sandbox"
	defer k.measure(metrics.SnapshotRolledBack, time.Now(), &err)
	b, err := k.opts.Find(ctx, p, id)
	if err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	r, err := k.usable(ctx, p, ref)
	if err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	if r.Disk {
		return sandbox.Snapshot{}, sandbox.Wrap(driver.NoRollback(), op, "")
	}
	if err := driver.CanRollback(k.opts.Driver); err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	if had, has := r.Setup.Workspace != "", b.Setup().Workspace != ""; had != has {
		err := sandbox.Errorf(sandbox.Invalid, "snapshot: %s is of a sandbox that differs from this one in having a workspace", r.ID)
		return sandbox.Snapshot{}, sandbox.Wrap(sandbox.WithHint(err, "make a sandbox of the snapshot instead"), op, "")
	}
	if endRuns {
		if err := b.EndRuns(ctx); err != nil {
			return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
		}
	}
	err = b.Still(ctx, func(ctx context.Context, box driver.Box) error {
		return driver.Rollback(ctx, box, sandbox.DriverSnapshot(r.ID))
	})
	if err == nil {
		err = k.opts.Records.BaseSnapshot(context.WithoutCancel(ctx), id, r.ID)
	}
	if err != nil {
		return sandbox.Snapshot{}, sandbox.Wrap(err, op, "")
	}
	k.opts.Log.Info("rolled back sandbox", "snapshot", r.ID, "sandbox", id)
	return k.seen(r).Snapshot, nil
}

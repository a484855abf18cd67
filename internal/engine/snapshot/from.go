package snapshot

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A From is the snapshot that a sandbox is made of. Its methods work on nil, which is
// none.
type From struct {
	k    *Keeper
	p    sandbox.Principal
	rec  store.Snapshot
	made string // the workspace that was made for the sandbox, or ""
}

// From returns the snapshot of a request, or nil, and completes the request by it.
func (k *Keeper) From(ctx context.Context, p sandbox.Principal, req *sandbox.CreateRequest) (*From, error) {
	if req.Snapshot == "" {
		if req.CopyWorkspace {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "copy_workspace: a sandbox without a snapshot has no workspace to copy"), "name a snapshot")
		}
		return nil, nil
	}
	if req.Image != "" {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "image: a sandbox of a snapshot has the snapshot's image"), "leave the image out")
	}
	r, err := k.usable(ctx, p, req.Snapshot)
	if err != nil {
		return nil, err
	}
	had := r.Setup
	req.Image, req.Writable = had.Image, had.Writable
	if req.Network == "" {
		req.Network = had.Network
	}
	if (req.Network == sandbox.NetworkNone) != (had.Network == sandbox.NetworkNone) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "network: the sandbox of snapshot %s had the network %s, so this one cannot have %s", r.ID, had.Network, req.Network),
			"leave the network out, or use a policy of the same kind")
	}
	for _, l := range []struct {
		name     string
		set      bool
		adoption func()
		differs  bool
	}{
		{"cpus", req.Limits.CPUs != 0, func() { req.Limits.CPUs = had.Limits.CPUs }, req.Limits.CPUs != had.Limits.CPUs},
		{"processes", req.Limits.Processes != 0, func() { req.Limits.Processes = had.Limits.Processes }, req.Limits.Processes != had.Limits.Processes},
		{"disk", req.Limits.DiskBytes != 0, func() { req.Limits.DiskBytes = had.Limits.DiskBytes }, req.Limits.DiskBytes != had.Limits.DiskBytes},
	} {
		if l.set && l.differs {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: a sandbox of a snapshot has the snapshot's limit", l.name), "leave it out")
		}
		l.adoption()
	}
	if req.Limits.MemoryBytes == 0 {
		req.Limits.MemoryBytes = had.Limits.MemoryBytes
	}
	f := &From{k: k, p: p, rec: r}
	if had.Workspace == "" {
		if req.Workspace != "" || req.CopyWorkspace {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "workspace: the sandbox of snapshot %s had none, so this one cannot have one", r.ID), "leave the workspace out")
		}
		return f, nil
	}
	if req.Workspace == "" {
		req.Workspace = "fork-" + strings.TrimPrefix(sandbox.NewID(), sandbox.IDPrefix)
		f.made = req.Workspace
	}
	if req.CopyWorkspace {
		if err := k.opts.CopyWorkspace(ctx, p, had.Workspace, req.Workspace); err != nil {
			return nil, err
		}
		f.made = req.Workspace
	}
	return f, nil
}

// Image returns the image as the driver is asked for it, or the one that find returns.
func (f *From) Image(find func() (string, error)) (string, error) {
	if f == nil {
		return find()
	}
	return f.rec.Setup.ImageID, nil
}

// Make makes the box of a sandbox.
func (f *From) Make(ctx context.Context, d driver.Driver, spec *driver.Spec) (driver.Box, error) {
	if f == nil {
		return d.Create(ctx, spec)
	}
	snapshots, err := driver.Snapshots(d)
	if err != nil {
		return nil, err
	}
	return snapshots.CreateFrom(ctx, spec, sandbox.DriverSnapshot(f.rec.ID))
}

// End is called when the sandbox was made, or could not be, as err says. It returns
// err.
func (f *From) End(ctx context.Context, id string, err error) error {
	if f == nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		if err := f.k.opts.Records.BaseSnapshot(ctx, id, f.rec.ID); err != nil {
			f.k.opts.Log.Error("record the snapshot of a sandbox", "sandbox", id, "error", err)
		}
		return nil
	}
	if f.made != "" {
		if rerr := f.k.opts.RemoveWorkspace(ctx, f.p, f.made); rerr != nil && sandbox.KindOf(rerr) != sandbox.NotFound {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// forksAtOnce is how many copies of a sandbox are made at the same time.
const forksAtOnce = 4

// Fork makes copies of a running sandbox, which goes on. Each copy has the sandbox's
// memory and programs, unless the request is for the disk alone. It has the files,
// environment, labels and network, and a name, an identifier and an end of its own. An
// error means that nothing was made. Otherwise each copy, or its error, is in the result.
func (k *Keeper) Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) (_ []sandbox.Fork, err error) {
	const op = "fork sandbox"
	defer k.measure(metrics.SnapshotForked, time.Now(), &err)
	if req.Count == 0 {
		req.Count = 1
	}
	if req.Count < 0 || req.Count > sandbox.MaxForks {
		return nil, sandbox.Wrap(sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "count: %d is not between 1 and %d", req.Count, sandbox.MaxForks), "ask for fewer, several times"), op, "")
	}
	b, err := k.opts.Find(ctx, p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	parent, err := k.opts.View(ctx, p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	rec, err := k.take(ctx, p, b, store.Snapshot{Snapshot: sandbox.Snapshot{Disk: req.Disk}})
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	forks := make([]sandbox.Fork, req.Count)
	places := make(chan struct{}, forksAtOnce)
	var all sync.WaitGroup
	for i := range forks {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			name := parent.Name
			if name != "" {
				name += "-" + strconv.Itoa(i+1)
			}
			forks[i].Sandbox, forks[i].Err = k.opts.Create(ctx, p, sandbox.CreateRequest{
				Snapshot: rec.ID, CopyWorkspace: req.CopyWorkspace && rec.Workspace != "", Name: name, Network: parent.Network,
				Limits: sandbox.Limits{MemoryBytes: parent.Limits.MemoryBytes, Idle: parent.Limits.Idle, Lifetime: parent.Limits.Lifetime},
				Env:    b.Env(), TTL: req.TTL, AtEnd: parent.AtEnd, Restless: parent.Restless, Labels: maps.Clone(parent.Labels),
			})
		})
	}
	all.Wait()
	// The children keep the parent's base, because no caller knows this snapshot.
	if err := k.remove(ctx, rec); err != nil {
		k.opts.Log.Error("remove the snapshot of a fork", "snapshot", rec.ID, "error", err)
	}
	return forks, nil
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/statedir"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// CheckRemoval returns an error unless [BeginRemoval] and [Removal.Run] may remove the state directory
// of c: it is one of Glovebox, and no process uses it. exists is false if there is
// nothing to remove. live counts the sandboxes that are recorded as live, also if a
// process uses the directory.
func CheckRemoval(ctx context.Context, c config.Config) (exists bool, live int, err error) {
	recs, err := checkRemoval(ctx, c, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	return err == nil, len(recs), err
}

// checkRemoval is CheckRemoval with the records of the live sandboxes.
func checkRemoval(ctx context.Context, c config.Config, r *store.Removal) (_ []store.Sandbox, err error) {
	if err := statedir.Check(c.StateDir, store.FileName); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{Dir: c.StateDir, Removal: r})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	recs, err := db.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	pids, err := db.LiveOwners(ctx)
	if err != nil {
		return nil, err
	}
	if len(pids) > 0 {
		return recs, sandbox.WithHint(
			sandbox.Errorf(sandbox.Conflict, "state directory %s: a server or a command of Glovebox uses it, as process %s", c.StateDir, numbers(pids)),
			"end it first: kill %s", numbers(pids))
	}
	return recs, nil
}

// numbers returns numbers with blanks between them.
func numbers(n []int) string { return strings.Trim(fmt.Sprint(n), "[]") }

// A Removal removes a state directory. From BeginRemoval to Close, no other process
// of this version can begin to use the directory.
type Removal struct {
	opts Options
	lock *store.Removal
	recs []store.Sandbox // the live sandboxes
}

// BeginRemoval begins the removal of the state directory, which must exist. It
// changes nothing. It returns an error as [CheckRemoval] does. The caller closes the
// Removal.
func BeginRemoval(ctx context.Context, opts Options) (_ *Removal, err error) {
	if err := statedir.Check(opts.Config.StateDir, store.FileName); err != nil {
		return nil, err
	}
	if _, err := checkRemoval(ctx, opts.Config, nil); err != nil {
		return nil, err // names the processes, as the lock cannot
	}
	lock, err := store.LockForRemoval(opts.Config.StateDir)
	if err != nil {
		return nil, err
	}
	opts.removal = lock
	// Older versions do not have the lock.
	recs, err := checkRemoval(ctx, opts.Config, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return &Removal{opts, lock, recs}, nil
}

// Close ends the removal. Other processes can then use the state directory, which is
// new unless Run failed.
func (r *Removal) Close() error { return r.lock.Release() }

// Run stops every sandbox of the state directory, whatever its driver, and
// removes the directory. It calls report with each object that it removed. If a
// sandbox cannot be stopped, it removes no file. It follows no link in the directory.
func (r *Removal) Run(ctx context.Context, report func(removed string)) error {
	opts, recs := r.opts, r.recs
	opts.Looks, opts.Pool, opts.Detached = true, false, false
	drivers := []string{opts.Config.Driver}
	for _, rec := range recs {
		if !slices.Contains(drivers, rec.Driver) {
			drivers = append(drivers, rec.Driver)
		}
	}
	for i, name := range drivers {
		opts.Config.Driver = name
		isOf := func(rec store.Sandbox) bool { return rec.Driver == name }
		err := removeBoxes(ctx, opts, report)
		if err != nil && i == 0 && !slices.ContainsFunc(recs, isOf) {
			continue // the configured driver does not work here, and has no sandboxes
		}
		if err != nil {
			return err
		}
	}
	recs, err := checkRemoval(ctx, opts.Config, r.lock)
	if err != nil {
		return err
	}
	if len(recs) > 0 {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s of driver %s does not end", recs[0].ID, recs[0].Driver)
	}
	if runtime.GOOS == "windows" { // it does not remove an open file
		if err := r.lock.Release(); err != nil {
			return err
		}
	}
	if err := statedir.Remove(opts.Config.StateDir, store.FileName); err != nil {
		return err
	}
	report(opts.Config.StateDir)
	return nil
}

// removeBoxes stops the sandboxes of one driver, and destroys its strays.
func removeBoxes(ctx context.Context, opts Options, report func(string)) (err error) {
	sys, err := Open(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close(context.WithoutCancel(ctx))) }()
	list, err := sys.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Driver != sys.DriverName() {
			continue
		}
		if err := sys.StopSandbox(ctx, s.ID); err != nil && !errors.Is(err, sandbox.NotFound) {
			return err
		}
		report("sandbox " + s.ID)
	}
	return sys.Engine.Sweep(ctx)
}

// Package snapshots keeps snapshots of sandboxes at E2B, which has them as templates of the
// team. It adds what the driver's contract has beyond that:
//
//   - A [Record] in the state directory has what a new box must match, and the names of
//     contexts. It is written before E2B is asked, so that no snapshot stays at E2B
//     without a record.
//   - The name of a snapshot at E2B has the name of the state directory and our
//     identifier. A snapshot whose answer was lost is found by that.
//   - E2B deletes no snapshot whose sandboxes exist. Its record is then marked as
//     removed, and [Keeper.List] tries again.
//
// The driver e2b uses it, and its [Keeper] lives as long as the driver.
package snapshots

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/e2b/plane"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LateTime is how long after a request E2B may still make the snapshot that it is for.
const LateTime = 15 * time.Minute

// A Keeper keeps the snapshots of a state directory. Its methods are safe for concurrent
// use.
type Keeper struct {
	plane   *plane.Client
	prefix  string
	records records
	log     *slog.Logger
}

// New returns a Keeper whose records are in dir. state is the name of the state directory,
// in lower-case letters and digits.
func New(c *plane.Client, dir, state string, log *slog.Logger) *Keeper {
	return &Keeper{plane: c, prefix: "glovebox-" + state + "-", records: records{dir: dir}, log: log}
}

// Take takes a snapshot of a sandbox, which rec describes. The error is of kind Conflict
// if there is a snapshot id, of kind Unsupported if the account or the server takes none,
// and wraps the driver's ErrGone if there is no such sandbox.
func (k *Keeper) Take(ctx context.Context, box, id string, rec Record) error {
	rec.Changed = time.Now()
	if err := k.records.add(id, rec); err != nil {
		return err
	}
	made, err := k.plane.Snapshot(ctx, box, k.prefix+id)
	if err == nil {
		rec.Template = made
		if err = k.records.put(id, rec); err == nil {
			return nil
		}
	}
	if r, ok := errors.AsType[*plane.Refusal](err); ok && (r.Status < 500 || r.Status == http.StatusNotImplemented) {
		return errors.Join(k.whyNone(ctx, box, r, err), k.records.drop(id)) // the request had no effect
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*plane.RequestTimeout)
	defer cancel()
	if rerr := k.Remove(clean, id); rerr != nil {
		k.log.Warn("remove a snapshot that failed; it is tried again later", "snapshot", id, "error", rerr)
	}
	return err
}

// whyNone returns the error of a snapshot that E2B refused.
func (k *Keeper) whyNone(ctx context.Context, box string, r *plane.Refusal, err error) error {
	if r.Status == http.StatusNotFound {
		if _, gerr := k.plane.Get(ctx, box); gerr != nil {
			return err // the sandbox is gone
		}
	}
	if hasNone(r) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this account or server takes no snapshots: %w", r),
			"use the API key of a team that has snapshots, or copy the files out")
	}
	return err
}

// hasNone reports whether a refusal means that the account or the server has no snapshots.
func hasNone(r *plane.Refusal) bool {
	return slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, r.Status)
}

// Get returns the record of a snapshot that sandboxes can be made of. The error is of kind
// NotFound if there is none.
func (k *Keeper) Get(id string) (*Record, error) {
	rec, err := k.records.get(id)
	if err == nil && (rec == nil || rec.Template == "" || rec.Removed) {
		err = ErrNone(id)
	}
	return rec, err
}

// ErrNone returns the error, of kind NotFound, for a snapshot that there is not.
func ErrNone(id string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no snapshot %.80q at E2B", id), "take another snapshot")
}

// List returns the identifiers of all snapshots, also of incomplete ones. It asks E2B only
// if there are records. It also tries again to delete what E2B did not delete before.
func (k *Keeper) List(ctx context.Context) ([]string, error) {
	recs, err := k.records.all()
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	there, err := k.plane.Snapshots(ctx, k.prefix)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for id := range there {
		ids[id] = recs[id] == nil || !recs[id].Removed
	}
	for id, rec := range recs {
		if rec.Removed {
			if err := k.remove(ctx, id, rec, there[id]); err != nil {
				k.log.Warn("remove a snapshot at E2B; it is tried again later", "snapshot", id, "error", err)
			}
		} else if rec.Template == "" {
			ids[id] = true // incomplete
		}
	}
	maps.DeleteFunc(ids, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(ids)), nil
}

// Remove removes a snapshot. It has no effect if there is none.
func (k *Keeper) Remove(ctx context.Context, id string) error {
	rec, err := k.records.get(id)
	if err != nil {
		return err
	}
	if rec == nil {
		rec = &Record{}
	} else if rec.Removed {
		return nil // List tries again
	}
	there, err := k.plane.Snapshots(ctx, k.prefix)
	if r, ok := errors.AsType[*plane.Refusal](err); ok && hasNone(r) && rec.Template == "" {
		there, err = nil, nil
	}
	if err != nil {
		return err
	}
	return k.remove(ctx, id, rec, there[id])
}

// remove deletes a snapshot at E2B, which has it by the names in there, and its record.
// The record stays, marked as removed, while E2B has sandboxes of the snapshot, or may
// still make it.
func (k *Keeper) remove(ctx context.Context, id string, rec *Record, there []string) error {
	if len(there) == 0 && rec.Template == "" {
		there = []string{k.prefix + id} // E2B's list leaves out what it did not complete
	}
	used := false
	for _, name := range there {
		err := k.plane.DeleteSnapshot(ctx, name)
		r, refused := errors.AsType[*plane.Refusal](err)
		switch {
		case err == nil, refused && r.Status == http.StatusNotFound:
		case refused && (r.Status == http.StatusBadRequest || r.Status == http.StatusConflict) && strings.Contains(r.Message, "sandbox"):
			used = true
		default:
			return err
		}
	}
	known := !rec.Changed.IsZero()
	late := known && rec.Template == "" && time.Since(rec.Changed) < LateTime
	if !used && !late {
		return k.records.drop(id)
	}
	if rec.Removed {
		return nil
	}
	gone := *rec
	gone.Removed = true
	if !known {
		gone.Changed = time.Now()
	}
	return k.records.put(id, gone)
}

// Package strays removes boxes that belong to no sandbox.
package strays

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Options configure a Sweeper. All fields are required.
type Options struct {
	Driver  driver.Driver
	Name    string // of the driver
	Records *store.Store
	Log     *slog.Logger
	// CreateTimeout is how long a box can be made for a sandbox at most.
	CreateTimeout time.Duration
}

// A Sweeper removes strays. It remembers when it saw those first that it may not remove
// yet.
type Sweeper struct {
	opts Options
	seen map[string]time.Time
}

// New returns a Sweeper.
func New(o Options) *Sweeper { return &Sweeper{opts: o, seen: map[string]time.Time{}} }

// Sweep destroys boxes that belong to no live sandbox. It is not called again before it
// has returned.
//
// A box that is being made has a record, but the record does not have its
// reference yet. If the reference contains the sandbox's identifier, the sweep
// recognises it. Any other box must have been a stray for longer than a
// creation takes before it is destroyed.
func (s *Sweeper) Sweep(ctx context.Context, refs []string, recs []store.Sandbox, now time.Time) error {
	known := map[string]bool{}
	// Boxes that a pool keeps ready are not strays. Nor are boxes that the pool
	// just gave to a sandbox whose record does not name them yet.
	warm, err := s.opts.Records.WarmBoxes(ctx)
	if err != nil {
		return err
	}
	var starting []string
	for _, rec := range recs {
		if rec.Driver != s.opts.Name {
			continue
		}
		known[rec.Ref] = true
		if rec.Ref != "" {
			continue
		}
		alive, err := s.opts.Records.OwnerAlive(rec.Owner)
		if err != nil {
			return err
		}
		if alive {
			starting = append(starting, rec.ID)
		}
	}
	refs = slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
		isOf := func(id string) bool { return strings.Contains(ref, id) }
		return known[ref] || slices.ContainsFunc(starting, isOf) || slices.ContainsFunc(warm, isOf)
	})
	if len(refs) > 0 {
		// A stop removes the box before the record ends. If it ran between the first
		// list and the read of the records, the second list lacks the box.
		still, err := s.opts.Driver.List(ctx)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(ref string) bool { return !slices.Contains(still, ref) })
	}
	var errs []error
	strays := map[string]time.Time{}
	for _, ref := range refs {
		first, seen := s.seen[ref]
		if !seen {
			first = now
		}
		namesAnother := strings.Contains(ref, sandbox.IDPrefix)
		if len(starting) > 0 && !namesAnother && now.Sub(first) < s.opts.CreateTimeout {
			strays[ref] = first
			continue
		}
		if err := s.opts.Driver.Discard(ctx, ref); err != nil {
			errs = append(errs, fmt.Errorf("discard box %s: %w", ref, err))
			strays[ref] = first
			continue
		}
		s.opts.Log.Warn("removed a box that belonged to no sandbox", "ref", ref)
	}
	s.seen = strays
	return errors.Join(errs...)
}

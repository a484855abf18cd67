// Package strays destroys boxes that belong to no live sandbox.
//
// Only the engine imports it. It makes one [Strays] for each engine, whose sweeps use
// it one after another.
package strays

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Records are the records of boxes that are no strays.
type Records interface {
	WarmBoxes(ctx context.Context) ([]string, error)
	OwnerAlive(owner string) (bool, error)
}

// Strays knows the boxes that may be strays.
type Strays struct {
	Driver  driver.Driver
	Records Records
	Log     *slog.Logger
	// CreateTime is the longest time that a creation takes.
	CreateTime time.Duration

	seen map[string]time.Time // when each was seen first
}

// Sweep destroys the strays among the boxes refs, which were listed before the records
// recs.
//
// A box that is being made has a record, but the record does not have its
// reference yet. If the reference contains the sandbox's identifier, the sweep
// recognises it. Any other box must have been a stray for longer than a
// creation takes before it is destroyed. So must all boxes of a driver whose references
// are opaque: those of another Glovebox, by E2B's API, look like identifiers.
func (s *Strays) Sweep(ctx context.Context, refs []string, recs []store.Sandbox, now time.Time) error {
	known := map[string]bool{}
	// Boxes that a pool keeps ready are not strays. Nor are boxes that the pool
	// just gave to a sandbox whose record does not name them yet.
	warm, err := s.Records.WarmBoxes(ctx)
	if err != nil {
		return err
	}
	var starting []string
	for _, rec := range recs {
		if rec.Driver != s.Driver.Info().Name {
			continue
		}
		known[rec.Ref] = true
		if rec.Ref != "" {
			continue
		}
		alive, err := s.Records.OwnerAlive(rec.Owner)
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
		still, err := s.Driver.List(ctx)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(ref string) bool { return !slices.Contains(still, ref) })
	}
	seen := map[string]time.Time{}
	var strays []string
	for _, ref := range refs {
		seen[ref] = now
		if first, ok := s.seen[ref]; ok {
			seen[ref] = first
		}
		namesAnother := !s.Driver.Info().OpaqueRefs && strings.Contains(ref, sandbox.IDPrefix)
		if len(starting) == 0 || namesAnother || now.Sub(seen[ref]) >= s.CreateTime {
			strays = append(strays, ref)
		}
	}
	errs := s.discard(ctx, strays)
	for i, ref := range strays {
		if errs[i] == nil {
			delete(seen, ref)
		}
	}
	s.seen = seen
	return errors.Join(errs...)
}

// atOnce is how many strays are destroyed at the same time. A server that died may have
// left thousands, and an end may take a second.
const atOnce = 16

// discard destroys strays, and returns the error of each.
func (s *Strays) discard(ctx context.Context, refs []string) []error {
	errs := make([]error, len(refs))
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, ref := range refs {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := s.Driver.Discard(ctx, ref); err != nil {
				errs[i] = fmt.Errorf("discard box %s: %w", ref, err)
				return
			}
			s.Log.Warn("removed a box that belonged to no sandbox", "ref", ref)
		})
	}
	wg.Wait()
	return errs
}

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Mend removes what processes that are no more left of sandboxes, by every
// driver that can be used here: sandboxes that nobody takes over, boxes without
// a sandbox, and what [driver.Cleaner] names. Sandboxes of a server that is to
// come back are left to it. It returns a check for each driver.
func Mend(ctx context.Context, opts Options) []Check {
	names, _, err := opts.candidates(opts.Config.Driver)
	if err != nil {
		return nil // Doctor says so
	}
	opts.Passive, opts.Pool = true, false
	var checks []Check
	for _, name := range names {
		opts.Config.Driver = name
		if c, ok := mend(ctx, opts); ok {
			checks = append(checks, c)
		}
	}
	return checks
}

// mend does that for one driver; ok is false if it cannot be used here.
func mend(ctx context.Context, opts Options) (c Check, ok bool) {
	name := "leftovers of " + opts.Config.Driver
	sys, err := Open(ctx, opts)
	if err != nil {
		return Check{}, false // what keeps it from opening, Doctor says
	}
	defer func() {
		if err := sys.Close(context.WithoutCancel(ctx)); err != nil && ok {
			c = failed(name, err)
		}
	}()
	if sys.driver.Probe(ctx) != nil {
		return Check{}, false
	}
	removed, waiting, err := sys.sweep(ctx)
	if err != nil {
		c = failed(name, err)
		c.Status = CheckWarning
		return c, true
	}
	c = Check{Name: name, Status: CheckOK, Detail: "none"}
	if len(removed) > 0 {
		c.Detail = "removed " + strings.Join(removed, ", ")
	}
	if len(waiting) > 0 {
		c.Status = CheckNote
		c.Detail += fmt.Sprintf("; sandboxes of a server that does not run: %s", strings.Join(waiting, ", "))
		c.Fix = "start the server, which takes them over, or stop them: glovebox stop " + strings.Join(waiting, " ")
	}
	return c, true
}

// sweep removes what is left, and returns what that was, and the sandboxes that
// a server has to take over.
func (s *System) sweep(ctx context.Context) (removed, waiting []string, err error) {
	before, err := s.remains(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.Engine.Sweep(ctx); err != nil {
		return nil, nil, err
	}
	after, err := s.remains(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range before {
		if !slices.Contains(after, id) {
			removed = append(removed, "sandbox "+id)
		}
	}
	others, err := driver.Leftovers(ctx, s.driver, true)
	if err != nil {
		return nil, nil, err
	}
	live, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, rec := range live {
		alive, err := s.store.OwnerAlive(rec.Owner)
		if err != nil {
			return nil, nil, err
		}
		if !alive && rec.Driver == s.DriverName() {
			waiting = append(waiting, rec.ID)
		}
	}
	return append(removed, others...), waiting, nil
}

// remains returns the sandboxes that the store says live, or the driver has
// something of.
func (s *System) remains(ctx context.Context) ([]string, error) {
	ids, err := s.driver.List(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, rec := range live {
		if rec.Driver == s.DriverName() {
			ids = append(ids, rec.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// checkLeftovers tells of what Mend would remove, apart from sandboxes.
func checkLeftovers(ctx context.Context, d driver.Driver) []Check {
	c := Check{Name: "leftovers", Status: CheckNote, Fix: "glovebox doctor --fix"}
	names, err := driver.Leftovers(ctx, d, false)
	switch {
	case err != nil:
		c.Status, c.Detail, c.Fix = CheckWarning, err.Error(), sandbox.HintOf(err)
	case len(names) == 0:
		return nil
	default:
		c.Detail = fmt.Sprintf("%d of boxes that are no more: %s", len(names), strings.Join(names[:min(len(names), 5)], ", "))
	}
	return []Check{c}
}

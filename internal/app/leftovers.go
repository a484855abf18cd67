package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Mend removes leftovers of ended processes, for every driver that works here.
// Leftovers are sandboxes without a successor process, boxes without a sandbox,
// and the leftovers that [driver.Cleaner] names. Sandboxes that a server will
// take over at its next start stay. It returns a check for each driver.
func Mend(ctx context.Context, opts Options) []Check {
	names, _, err := opts.candidates(opts.Config.Driver)
	if err != nil {
		return nil // Doctor reports it
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

// mend is Mend for one driver; ok is false if the driver does not work here.
func mend(ctx context.Context, opts Options) (c Check, ok bool) {
	name := "leftovers of " + opts.Config.Driver
	sys, err := Open(ctx, opts)
	if err != nil {
		return Check{}, false // Doctor reports the reason
	}
	defer func() {
		if err := sys.Close(context.WithoutCancel(ctx)); err != nil && ok {
			c = failed(name, err)
		}
	}()
	if sys.driver.Probe(ctx) != nil {
		return Check{}, false
	}
	removed, waiting, err := sys.RemoveLeftovers(ctx)
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

// checkLeftovers reports the leftovers that Mend would remove, except sandboxes.
func checkLeftovers(ctx context.Context, d driver.Driver) []Check {
	c := Check{Name: "leftovers", Status: CheckNote, Fix: "glovebox doctor --fix"}
	names, err := driver.Leftovers(ctx, d, false)
	switch {
	case err != nil:
		c.Status, c.Detail, c.Fix = CheckWarning, err.Error(), sandbox.HintOf(err)
	case len(names) == 0:
		return nil
	default:
		c.Detail = fmt.Sprintf("%d of ended sandboxes, such as %s", len(names), names[0])
	}
	return []Check{c}
}

// checkWaiting reports the sandboxes that no process holds.
func (s *System) checkWaiting(ctx context.Context) []Check {
	waiting, err := s.Waiting(ctx)
	c := Check{Name: "sandboxes without a server", Status: CheckNote, Detail: fmt.Sprint(len(waiting))}
	switch {
	case err != nil:
		return []Check{failed(c.Name, err)}
	case len(waiting) == 0:
		return nil
	case s.EndsByLease():
		c.Detail += "; they end at their limits, unless a server takes them over"
		c.Fix = "glovebox stop --all ends them now"
	default:
		c.Status = CheckWarning
		c.Detail += "; with driver " + s.DriverName() + ", only a process of Glovebox ends them at their limits"
		c.Fix = "start the server, which takes them over, or end them: glovebox stop --all"
	}
	return []Check{c}
}

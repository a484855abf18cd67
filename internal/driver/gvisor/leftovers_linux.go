package gvisor

import (
	"context"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Cleaner = (*Driver)(nil)

// leftoverAge is the minimum age of a leftover. A supervisor may still be about to
// put a process into a younger control group.
const leftoverAge = 10 * time.Minute

// Leftovers implements [driver.Cleaner]. The leftovers are control groups without a
// process, and the sentries of boxes whose directory was removed, of any state
// directory except this driver's own. The box of a supervisor that lives is no
// leftover: the supervisor ends it by its lease.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	const op = "look for leftovers"
	own, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	orphans, err := findOrphans(own)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	var names []string
	for _, o := range orphans {
		if remove {
			// The network of the box ends when its sentry does.
			if err := process.Kill(o.pid, o.id); err != nil {
				return names, sandbox.Wrap(err, op, "")
			}
		}
		names = append(names, fmt.Sprintf("process %d of %s", o.pid, o.id))
	}
	groups, err := cgroup.Empty(cgroup.Parents(), own, time.Now().Add(-leftoverAge), remove)
	return append(names, groups...), sandbox.Wrap(err, op, "")
}

package gvisor

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Cleaner = (*Driver)(nil)

// leftoverAge is the minimum age of a leftover. A supervisor may still be about to
// put a process into a younger control group.
const leftoverAge = 10 * time.Minute

// Leftovers implements [driver.Cleaner]. The leftovers are control groups without a
// process, of boxes of any state directory except this driver's own.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	own, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	names, err := cgroup.Empty(cgroup.Parents(), own, time.Now().Add(-leftoverAge), remove)
	return names, sandbox.Wrap(err, "look for leftovers", "")
}

package cli

import (
	"context"
	"time"
)

// watchSize calls changed when the terminal's size changes, until ctx ends.
// Windows has no signal for it, so watchSize polls.
func watchSize(ctx context.Context, fd int, changed func()) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	last := *terminalSize(fd)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now := *terminalSize(fd); now != last {
				last = now
				changed()
			}
		}
	}
}

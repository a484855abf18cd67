//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchSize calls changed when the terminal's size changes, until ctx ends.
func watchSize(ctx context.Context, _ int, changed func()) {
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	defer signal.Stop(sizes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sizes:
			changed()
		}
	}
}

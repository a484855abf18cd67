// Command glovebox runs untrusted code in sealed sandboxes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/cli"
)

func main() {
	// First, as this may be a helper process, or the guest.
	reexec()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once; what it made ends with it.
	context.AfterFunc(ctx, stop)
	// A reader of our output that leaves is an error to handle, not our end.
	// It is caught and not ignored, as children would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	os.Exit(cli.Main(ctx, os.Args[0], os.Args[1:], cli.OS()))
}

package driver

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Restarter is a box that can start afresh with its files.
type Restarter interface {
	// Restart ends all programs of the running box, and starts the box as a new one with
	// the files that a snapshot without memory would have. The box keeps its reference,
	// its workspace, its limits, its network policy, its lease and its counts. All streams
	// to the guest end. After an error the box runs on as before, unless the error wraps
	// [ErrGone].
	//
	// The error is of kind [sandbox.Unsupported] if the box can never be restarted, and of
	// kind [sandbox.Conflict] if it cannot now, as when it rests or a file became shorter
	// while it was read.
	Restart(ctx context.Context) error
}

// Restart starts b afresh. The error wraps [sandbox.Unsupported] if its driver cannot.
func Restart(ctx context.Context, b Box) error {
	r, ok := as[Restarter](b)
	if !ok {
		return NoRestart()
	}
	return r.Restart(ctx)
}

// NoRestart returns the error, of kind [sandbox.Unsupported], of a driver whose boxes are
// no [Restarter].
func NoRestart() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver cannot start a sandbox afresh with its files"),
		"keep its memory, or make another sandbox of a snapshot without memory")
}

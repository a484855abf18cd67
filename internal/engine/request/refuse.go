package request

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Invalid returns an error of kind [sandbox.Invalid].
func Invalid(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// Closed returns the error of calls to a closed engine.
func Closed() error {
	return sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")
}

// NoSandbox is the error for a sandbox that does not exist for the caller,
// whatever the reason.
func NoSandbox(id string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "sandbox_id: there is no sandbox %s", excerpt.Quote(id)),
		"check the ID in the list of sandboxes, or make a new sandbox")
}

// NoRun is like NoSandbox, for a run.
func NoRun(id string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "run_id: there is no run %s", excerpt.Quote(id)),
		"runs are kept for a while after their end; start it again")
}

// NoWorkspace is the error for a workspace that does not exist for the caller.
func NoWorkspace(name string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "workspace: there is no workspace %s", excerpt.Quote(name)),
		"check the name in the list of workspaces; the first sandbox with a workspace makes it")
}

// Stopped is the error for a use of a sandbox that has stopped.
func Stopped(id, cause string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s has stopped: %s", id, cause),
		"make a new sandbox; what was in this one is gone")
}

// StartError returns err, or an error of kind Unavailable if ctx ended the
// start.
func StartError(ctx context.Context, err error) error {
	cause := ctx.Err()
	if cause == nil {
		return err
	}
	what := "the start was cancelled"
	if errors.Is(cause, context.DeadlineExceeded) {
		what = "the sandbox did not start in time"
	}
	if sandbox.KindOf(err) == sandbox.Internal {
		// These are a driver's words around the end of ctx, whose kind would count.
		return sandbox.Errorf(sandbox.Unavailable, "%s: %w: %s", what, cause, err.Error())
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: %w", what, errors.Join(cause, err))
}

// busyRetry is when a caller may try again that met a sandbox with too many runs or
// connections: some of them may have ended.
const busyRetry = time.Second

// TooManyRuns is the error for one run more than a sandbox may have.
func TooManyRuns(n int) error {
	return sandbox.WithRetryAfter(sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "there are %d runs in the sandbox, and there may be no more", n),
		"wait for some to finish, or use another sandbox"), busyRetry)
}

// TooManyConnections is the error for one connection more to ports of a sandbox than
// it may have.
func TooManyConnections(n int) error {
	return sandbox.WithRetryAfter(sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "there are %d connections to ports of the sandbox, and there may be no more", n),
		"close some"), busyRetry)
}

package request

import (
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

package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The exit statuses of glovebox. Otherwise, run and shell exit with the
// program's own status. The numbers are those of timeout(1), docker and shells.
const (
	statusFailure     = 1   // a command failed
	statusUsage       = 2   // the command line is wrong
	statusTimeout     = 124 // run: the program reached its timeout
	statusBroken      = 125 // run: Glovebox failed, not the program
	statusCancelled   = 130 // run: cancelled, for example by Ctrl-C
	statusOutOfMemory = 137 // run: the program used all its memory
	statusNoReader    = 141 // run: the reader of the output has closed it
)

// An exitError carries the command's exit status. If err is nil, everything has
// been printed already.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError returns an error in the use of the command.
func usageError(format string, args ...any) error {
	return &exitError{status: statusUsage, err: sandbox.Errorf(sandbox.Invalid, format, args...)}
}

// broken gives err the status of a failure of Glovebox, unless err already has a
// status.
func broken(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{status: statusBroken, err: err}
}

// exitStatus returns the exit status of glovebox run for the run.
func exitStatus(r sandbox.Run) int {
	switch r.Verdict.Code {
	case sandbox.OK:
		return 0
	case sandbox.Timeout:
		return statusTimeout
	case sandbox.OutOfMemory:
		return statusOutOfMemory
	case sandbox.Cancelled:
		return statusCancelled
	case sandbox.SandboxLost:
		return statusBroken
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		return *r.ExitCode
	}
	return statusFailure
}

func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err)
	}
	return abs, nil
}

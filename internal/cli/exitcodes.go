package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The exit statuses of glovebox. Those of run and shell are the program's own
// otherwise; the numbers are the ones that timeout(1), docker and shells use.
const (
	statusFailure     = 1   // a command failed
	statusUsage       = 2   // the command line is wrong
	statusTimeout     = 124 // run: the program took too long
	statusBroken      = 125 // run: Glovebox failed, not the program
	statusCancelled   = 130 // run: cancelled, by Ctrl-C say
	statusOutOfMemory = 137 // run: the program used all its memory
	statusNoReader    = 141 // run: nobody reads the output any more
)

// An exitError carries the exit status that the command ends with. With a nil
// err nothing is said: all has been said.
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

// usageError is an error in how the command was called.
func usageError(format string, args ...any) error {
	return &exitError{status: statusUsage, err: sandbox.Errorf(sandbox.Invalid, format, args...)}
}

// broken gives err the status that tells a failure of Glovebox from one of the
// program, unless it has a status.
func broken(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{status: statusBroken, err: err}
}

// exitStatus is the status with which glovebox run ends after the run.
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

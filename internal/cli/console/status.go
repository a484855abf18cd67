package console

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The exit statuses of glovebox. Otherwise, run and shell exit with the
// program's own status. The numbers are those of timeout(1), docker and shells.
const (
	StatusFailure     = 1   // a command failed
	StatusUsage       = 2   // the command line is wrong
	StatusTimeout     = 124 // run: the program reached its timeout
	StatusBroken      = 125 // run: Glovebox failed, not the program
	StatusCancelled   = 130 // run: cancelled, for example by Ctrl-C
	StatusOutOfMemory = 137 // run: the program used all its memory
	StatusNoReader    = 141 // run: the reader of the output has closed it
)

// An ExitError carries the command's exit status. If Err is nil, everything has
// been printed already.
type ExitError struct {
	Status int
	Err    error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageError returns an error in the use of the command.
func UsageError(format string, args ...any) error {
	return &ExitError{Status: StatusUsage, Err: sandbox.Errorf(sandbox.Invalid, format, args...)}
}

// Broken gives err the status of a failure of Glovebox, unless err already has a
// status.
func Broken(err error) error {
	var exit *ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &ExitError{Status: StatusBroken, Err: err}
}

// RunStatus returns the exit status of glovebox run for the run.
func RunStatus(r sandbox.Run) int {
	switch r.Verdict.Code {
	case sandbox.OK:
		return 0
	case sandbox.Timeout:
		return StatusTimeout
	case sandbox.OutOfMemory:
		return StatusOutOfMemory
	case sandbox.Cancelled:
		return StatusCancelled
	case sandbox.SandboxLost:
		return StatusBroken
	}
	if r.ExitCode != nil && *r.ExitCode != 0 {
		return *r.ExitCode
	}
	return StatusFailure
}

// Absolute returns path as an absolute path.
func Absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err)
	}
	return abs, nil
}

package console

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The exit statuses of glovebox. Otherwise, run and shell exit with the
// program's own status. The numbers are those of timeout(1), docker and shells.
// [Status] has the rule for errors.
const (
	StatusFailure     = 1   // a command other than run and shell failed
	StatusUsage       = 2   // any command: the command line, a file that it names or a setting is wrong
	StatusTimeout     = 124 // run: the program reached its timeout
	StatusBroken      = 125 // run and shell: Glovebox failed, not the program
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

// Status returns the exit status for an error: the error's own; StatusUsage for an
// error of kind Invalid, which the same command line meets again; StatusFailure for
// any other.
func Status(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Status
	case sandbox.KindOf(err) == sandbox.Invalid:
		return StatusUsage
	}
	return StatusFailure
}

// Broken is for commands that exit with the status of a program: it gives err
// StatusBroken instead of StatusFailure.
func Broken(err error) error {
	if err == nil || Status(err) != StatusFailure {
		return err
	}
	var exit *ExitError
	if errors.As(err, &exit) {
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

package console

import (
	"errors"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestStatus(t *testing.T) {
	invalid, missing := sandbox.Errorf(sandbox.Invalid, "memory"), sandbox.Errorf(sandbox.NotFound, "image")
	own := &ExitError{Status: 7}
	for _, c := range []struct {
		name         string
		err          error
		other, asRun int // the status of other commands, and of run
	}{
		{"success", nil, 0, 0},
		{"wrong argument", sandbox.Wrap(invalid, "start run", ""), StatusUsage, StatusUsage},
		{"usage", UsageError("--memory"), StatusUsage, StatusUsage},
		{"other kind", missing, StatusFailure, StatusBroken},
		{"no kind", errors.New("x"), StatusFailure, StatusBroken},
		{"own status", own, 7, 7},
		{"own status of 1", &ExitError{Status: StatusFailure}, StatusFailure, StatusFailure},
		{"several", errors.Join(missing, errors.New("x")), StatusFailure, StatusBroken},
	} {
		if got := Status(c.err); got != c.other {
			t.Errorf("%s: %d, want %d", c.name, got, c.other)
		}
		if got := Status(Broken(c.err)); got != c.asRun {
			t.Errorf("%s, as the error of a run: %d, want %d", c.name, got, c.asRun)
		}
	}
}

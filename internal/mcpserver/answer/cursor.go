package answer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Cursor is a position in both streams of a run's output, in bytes. Everything
// before it was shown.
type Cursor struct{ Stdout, Stderr int64 }

// String returns the cursor for a result. The argument after repeats it.
func (c Cursor) String() string { return fmt.Sprintf("%d,%d", c.Stdout, c.Stderr) }

// goOn sets the cursor and the next step of a result that does not have all output.
func (r *Run) goOn(o sandbox.Output) {
	running, more := r.Status == sandbox.RunRunning, r.Omitted != sandbox.Omitted{}
	if !running && !more {
		return
	}
	r.Cursor = Cursor{o.StdoutFrom, o.StderrFrom}.String()
	if running {
		r.NextStep = fmt.Sprintf("The run goes on. get_run with its run_id, wait_seconds and after=%q waits for it and shows what follows; stop_run ends it.", r.Cursor)
	} else {
		r.NextStep = fmt.Sprintf("get_run with its run_id and after=%q goes on where the output was cut, and with grep searches all of it.", r.Cursor)
	}
}

// ParseCursor reads the text of a Cursor that a caller gives.
func ParseCursor(text string) (Cursor, error) {
	first, second, ok := strings.Cut(text, ",")
	stdout, err := strconv.ParseUint(first, 10, 63)
	stderr, stderrErr := strconv.ParseUint(second, 10, 63)
	if !ok || err != nil || stderrErr != nil {
		return Cursor{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "after: %s is not a cursor", argument.Show(text)),
			"give the cursor of a result of this run, as it is")
	}
	return Cursor{Stdout: int64(stdout), Stderr: int64(stderr)}, nil
}

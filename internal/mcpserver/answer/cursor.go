package answer

import (
	"fmt"

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

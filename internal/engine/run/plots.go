package run

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// plots are the figures of a run's program.
type plots struct {
	dir  string // of the backend
	user string // of the program
}

// plotting are the languages whose programs may use matplotlib. A shell, like any
// command, may start Python.
var plotting = []string{language.Python, language.Bash, language.Sh}

// openPlots prepares the directory for the figures of a run's program, and returns
// it. It returns "" for a run without figures.
func (r *Run) openPlots(req sandbox.RunRequest, prog Program, user string) (dir string, err error) {
	if !req.Plots || prog.Runner != nil && !slices.Contains(plotting, prog.Runner.Language) {
		return "", nil
	}
	dir = path.Join(r.makeCodeDir(), "plots")
	err = trace.Do(r.ctx, "write plot backend", func(context.Context) error {
		// A file that the program saves is lost without a workspace.
		return guestlink.OpenPlots(r.ctx, r.in.Guest, dir, r.in.Mount == nil)
	})
	if err != nil {
		return "", sandbox.Wrap(err, "write plot backend", "")
	}
	r.plots = &plots{dir, user}
	return dir, nil
}

// plotsTimeout bounds the reading of a run's figures, because the end of the run
// waits for it.
const plotsTimeout = time.Minute

// keepPlots keeps the figures of the run's program as results. There are none in
// a sandbox that is being stopped.
func (r *Run) keepPlots() {
	if r.plots == nil || r.in.stops() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.set.ctx), plotsTimeout)
	defer cancel()
	err := guestlink.ReadPlots(ctx, r.in.Guest, r.plots.dir, r.plots.user, runlog.MaxResults, func(p sandbox.Result) error {
		if len(p.Data) == 0 {
			return r.results.Omit()
		}
		return r.results.Add(r.cleanResult(p))
	})
	// An unavailable sandbox has died, which the run's verdict says.
	if err != nil && !errors.Is(err, sandbox.NotFound) && !errors.Is(err, sandbox.Unavailable) {
		// At least the figure that was read is lost.
		r.set.opts.Log.Warn("read plots", "run", r.rec.ID, "error", errors.Join(err, r.results.Omit()))
	}
}

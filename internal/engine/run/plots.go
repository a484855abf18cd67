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
	dir   string // of the backend
	user  string // of the program
	sixel int    // the width of their sixels in pixels; 0 for none
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
	r.plots = &plots{dir, user, min(max(req.SixelWidth, 0), sandbox.MaxSixelSide)}
	return dir, nil
}

// The end of a run waits for its figures. plotsTimeout bounds the reading of them.
// sixelsTimeout bounds the sixels of all of them, which are a part of that.
const (
	plotsTimeout  = time.Minute
	sixelsTimeout = 20 * time.Second
)

// keepPlots keeps the figures of the run's program as results. There are none in
// a sandbox that is being stopped.
func (r *Run) keepPlots() {
	if r.plots == nil || r.in.stops() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.set.ctx), plotsTimeout)
	defer cancel()
	sixels, end := context.WithTimeout(ctx, sixelsTimeout)
	defer end()
	err := guestlink.ReadPlots(ctx, r.in.Guest, r.plots.dir, r.plots.user, runlog.MaxResults, func(p sandbox.Result) error {
		if len(p.Data) == 0 {
			return r.results.Omit()
		}
		res := r.cleanResult(p)
		if r.plots.sixel > 0 && sixels.Err() == nil {
			r.addSixels(sixels, &res)
		}
		return r.results.Add(res)
	})
	// An unavailable sandbox has died, which the run's verdict says.
	if err != nil && !errors.Is(err, sandbox.NotFound) && !errors.Is(err, sandbox.Unavailable) {
		// At least the figure that was read is lost.
		r.set.opts.Log.Warn("read plots", "run", r.rec.ID, "error", errors.Join(err, r.results.Omit()))
	}
}

// addSixels has the guest turn a figure into sixels, which is a preview of it. A
// figure without them is a result too.
func (r *Run) addSixels(ctx context.Context, res *sandbox.Result) {
	const mime = "image/png"
	picture, ok := res.Base64(mime)
	if !ok || picture.PictureType() != mime {
		return
	}
	data, err := r.in.Guest.Sixel(ctx, picture, mime, r.plots.sixel)
	if err != nil {
		r.set.opts.Log.Debug("make sixels", "run", r.rec.ID, "error", err)
		return
	}
	res.Previews[sandbox.MIMESixel] = sandbox.Preview{MIME: sandbox.MIMESixel, Data: sandbox.ToBase64(data)}
}

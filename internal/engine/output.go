package engine

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Output returns a run's output so far, shortened to budget bytes. Output that
// does not fit is replaced by the head and the tail of each stream, with exact
// counts of the missing bytes. The streams share the budget. A budget of 0
// means [sandbox.DefaultOutputBytes]; one below 0 or above 16 MiB is of kind
// Invalid.
func (e *Engine) Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error) {
	const op = "read output"
	if budget == 0 {
		budget = sandbox.DefaultOutputBytes
	}
	if budget < 0 || budget > request.MaxOutput {
		return sandbox.Output{}, sandbox.Wrap(request.Invalid("output_bytes: %d is not between 0 and %d", budget, request.MaxOutput), op, "")
	}
	r, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Output{}, sandbox.Wrap(err, op, "")
	}
	out, err := r.source().Excerpts(budget)
	return out, sandbox.Wrap(err, op, runID)
}

// ReadOutput returns up to limit bytes of one stream of a run from offset on,
// and the length of the stream so far. It returns fewer bytes at the end,
// before a part that was dropped, and for a limit above 16 MiB. An offset in a
// dropped part is of kind NotFound with a [sandbox.Gap], and the hint names the
// next valid offset.
func (e *Engine) ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error) {
	const op = "read output"
	s := runlog.Stdout
	switch stream {
	case sandbox.Stdout:
	case sandbox.Stderr:
		s = runlog.Stderr
	default:
		return nil, 0, sandbox.Wrap(request.Invalid("stream: %s is neither %s nor %s", excerpt.Quote(string(stream)), sandbox.Stdout, sandbox.Stderr), op, "")
	}
	if offset < 0 || limit < 0 {
		return nil, 0, sandbox.Wrap(request.Invalid("offset, limit: %d and %d may not be negative", offset, limit), op, "")
	}
	r, err := e.findRun(ctx, p, runID)
	if err != nil {
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	data, total, err = r.source().ReadAt(s, offset, min(limit, request.MaxRead))
	return data, total, sandbox.Wrap(err, op, runID)
}

// Follow calls f with all output of a run, from the first byte on, as it
// arrives. It returns nil when the run has finished and f has got all output.
// It ends early with ctx's error or with f's. Data is valid until f returns.
//
// A run in progress in this process waits for a slow f, so that no output is
// dropped before f gets it. A part that was dropped earlier is replaced by a
// line with its length. The order between the streams is kept while the run is
// in progress here, and shortly after its end.
func (e *Engine) Follow(ctx context.Context, p sandbox.Principal, runID string, f func(stream sandbox.StreamName, data []byte) error) error {
	const op = "follow run"
	r, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if r.live != nil {
		if err := r.live.Follow(ctx, f); err != nil {
			return followError(err, runID)
		}
		_, err := r.live.Wait(ctx)
		return followError(err, runID)
	}
	// The run belongs to another process, or ended long ago. Read the files,
	// and poll while it is in progress.
	var at [runlog.Streams]int64
	for {
		finished := r.rec.Status == sandbox.RunFinished
		if err := r.source().Deliver(&at, f); err != nil {
			return followError(err, runID)
		}
		if finished {
			return nil
		}
		select {
		case <-ctx.Done():
			return followError(ctx.Err(), runID)
		case <-time.After(pollEvery):
		}
		if r, err = e.findRun(ctx, p, runID); err != nil {
			return sandbox.Wrap(err, op, "")
		}
	}
}

// followError adds the operation to the engine's own errors. Errors of f or of
// ctx stay unchanged.
func followError(err error, runID string) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return sandbox.Wrap(e, "follow run", runID)
	}
	return err
}

// Results returns the results that a run in a context has shown so far, and the
// exception that ended it, if there was one. For any run it returns the
// previews of pictures that the run left in its workspace.
func (e *Engine) Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error) {
	const op = "read results"
	v, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Results{}, sandbox.Wrap(err, op, "")
	}
	out, err := v.files().Results()
	return out, sandbox.Wrap(err, op, runID)
}

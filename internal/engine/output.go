package engine

import (
	"context"
	"errors"
	"io/fs"
	"time"

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
	if budget < 0 || budget > maxOutput {
		return sandbox.Output{}, sandbox.Wrap(invalid("output_bytes: %d is not between 0 and %d", budget, maxOutput), op, "")
	}
	r, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Output{}, sandbox.Wrap(err, op, "")
	}
	out, err := again(func() (sandbox.Output, error) { return excerpts(r, budget) })
	return out, sandbox.Wrap(err, op, runID)
}

func excerpts(r runView, budget int) (out sandbox.Output, err error) {
	xs, err := r.extents()
	if err != nil {
		return out, err
	}
	take := func(stream, n int) (string, int64, error) {
		read := func(offset, n int64) ([]byte, error) { return r.files().read(stream, xs[stream], offset, n) }
		return excerpt(read, xs[stream], n)
	}
	out.StdoutBytes, out.StderrBytes = xs[stdout].total, xs[stderr].total
	// Each stream gets half of the budget, and the part of the other half that
	// is left.
	half := budget / 2
	if out.Stderr, out.Omitted.StderrBytes, err = take(stderr, half); err != nil {
		return out, err
	}
	if out.Stdout, out.Omitted.StdoutBytes, err = take(stdout, budget-len(out.Stderr)); err != nil {
		return out, err
	}
	if out.Omitted.StderrBytes > 0 && len(out.Stdout) < budget-half {
		out.Stderr, out.Omitted.StderrBytes, err = take(stderr, budget-len(out.Stdout))
	}
	return out, err
}

// again runs f, and retries it once if a file was missing. The log of a run in
// progress may drop files between listing and reading them.
func again[T any](f func() (T, error)) (T, error) {
	v, err := f()
	if errors.Is(err, fs.ErrNotExist) {
		return f()
	}
	return v, err
}

// ReadOutput returns up to limit bytes of one stream of a run from offset on,
// and the length of the stream so far. It returns fewer bytes at the end,
// before a part that was dropped, and for a limit above 16 MiB. An offset in a
// dropped part is of kind NotFound, and the hint names the next valid offset.
func (e *Engine) ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error) {
	const op = "read output"
	s := stdout
	switch stream {
	case sandbox.Stdout:
	case sandbox.Stderr:
		s = stderr
	default:
		return nil, 0, sandbox.Wrap(invalid("stream: %s is neither %s nor %s", shorten(string(stream)), sandbox.Stdout, sandbox.Stderr), op, "")
	}
	if offset < 0 || limit < 0 {
		return nil, 0, sandbox.Wrap(invalid("offset, limit: %d and %d may not be negative", offset, limit), op, "")
	}
	r, err := e.findRun(ctx, p, runID)
	if err != nil {
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	data, err = again(func() ([]byte, error) {
		xs, err := r.extents()
		if err != nil {
			return nil, err
		}
		total = xs[s].total
		return r.files().read(s, xs[s], offset, min(limit, maxReadBytes))
	})
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
		if err := r.live.log.follow(ctx, f); err != nil {
			return followError(err, runID)
		}
		_, err := r.live.wait(ctx)
		return followError(err, runID)
	}
	// The run belongs to another process, or ended long ago. Read the files,
	// and poll while it is in progress.
	var at [streams]int64
	for {
		finished := r.rec.Status == sandbox.RunFinished
		if err := r.deliver(&at, f); err != nil {
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

// deliver calls f with the data of the files after the offsets at, and advances
// these.
func (r runView) deliver(at *[streams]int64, f func(sandbox.StreamName, []byte) error) error {
	for s := range streams {
		for {
			type piece struct {
				data []byte
				next int64
			}
			got, err := again(func() (piece, error) {
				xs, err := r.extents()
				if err != nil {
					return piece{}, err
				}
				data, next, err := r.files().fetch(s, xs[s], at[s], readChunk)
				return piece{data, next}, err
			})
			if err != nil {
				return err
			}
			if got.next == at[s] {
				break
			}
			at[s] = got.next
			if err := f(streamName(s), got.data); err != nil {
				return err
			}
		}
	}
	return nil
}

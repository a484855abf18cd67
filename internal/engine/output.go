package engine

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Output returns what of a run's output so far fits budget bytes: all, or the
// head and the tail of each stream with exact counts of what is missing. The
// streams share the budget. With budget 0 it is [sandbox.DefaultOutputBytes].
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
	// Each stream gets half, and what the other leaves of its own.
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

// again runs f, and once more if a file was not there: the log of a run that
// goes on may drop some between looking and reading.
func again[T any](f func() (T, error)) (T, error) {
	v, err := f()
	if errors.Is(err, fs.ErrNotExist) {
		return f()
	}
	return v, err
}

// ReadOutput returns up to limit bytes of one stream of a run from offset on,
// and how many bytes the stream has so far. Less than limit comes at the end,
// before a part that was not kept, and for a limit above 16 MiB. An offset in
// such a part is of kind NotFound, and the hint says where to go on.
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

// Follow calls f with all output of a run from the first byte on, then as it
// comes, and returns nil when the run has finished and all was given to f. It
// ends early with ctx's error or with f's. Data is valid until f returns.
//
// A run that goes on in this process waits for a slow f rather than lose what
// f has not seen. What was dropped before stands in the stream as a line that
// counts it. The order between the streams is kept while the run goes on here,
// and soon after.
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
	// It is another process's, or ended long ago: read the files, and look
	// again while it goes on.
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

// followError adds to a fault of ours what was done; an error of the caller's
// own function or context stays as it is.
func followError(err error, runID string) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return sandbox.Wrap(e, "follow run", runID)
	}
	return err
}

// deliver calls f with what the files have beyond at.
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

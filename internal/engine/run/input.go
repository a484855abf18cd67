package run

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// inputChunk is the most input, in bytes, that is sent at once.
const inputChunk = 256 << 10

// SendInput sends input to the program, and closes the input if eof is set. The
// error is of kind [sandbox.Conflict] if the run has finished.
func (r *Run) SendInput(ctx context.Context, data []byte, eof bool) error {
	return r.inputError(ctx, r.sendInput(ctx, data, eof))
}

// Resize sets the size of the program's terminal. Errors are those of SendInput.
func (r *Run) Resize(ctx context.Context, size sandbox.TerminalSize) error {
	err := r.in.Guest.Resize(ctx, r.selector(), guestapi.PTYSize{Cols: uint32(size.Cols), Rows: uint32(size.Rows)})
	return r.inputError(ctx, err)
}

// inputError explains an error of the guest about a run's input.
func (r *Run) inputError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sandbox.NotFound):
		return Finished(r.rec.ID)
	default:
		return r.in.Life.Explain(ctx, err)
	}
}

// Finished returns the error for input to a run that has finished.
func Finished(id string) error {
	return sandbox.Errorf(sandbox.Conflict, "run_id: run %s has finished", id)
}

// sendInput sends input to the run, and closes the input if eof is set.
func (r *Run) sendInput(ctx context.Context, data []byte, eof bool) error {
	if r.x != nil {
		if !utf8.Valid(data) {
			return request.Invalid("text: is not UTF-8, and the input of a context is text")
		}
		err := r.in.Guest.ExecutionInput(ctx, r.rec.ID, &guestapi.InputRequest{Text: string(data), EOF: eof})
		if err == nil {
			r.mu.Lock()
			r.x.waits = nil
			r.mu.Unlock()
		}
		return err
	}
	for len(data) > 0 {
		n := min(len(data), inputChunk)
		if err := r.in.Guest.SendInput(ctx, r.selector(), data[:n], r.rec.Terminal); err != nil {
			return err
		}
		data = data[n:]
	}
	if eof {
		return r.closeInput(ctx)
	}
	return nil
}

// feed sends input to the program, and closes the input afterwards if eof is
// set. A program that ends before it has read all is no error.
func (r *Run) feed(data []byte, eof bool) {
	if err := r.sendInput(r.ctx, data, eof); err != nil {
		r.set.opts.Log.Debug("send input", "run", r.rec.ID, "error", err)
	}
}

// closeInput ends the program's input. On a terminal it sends a key.
func (r *Run) closeInput(ctx context.Context) error {
	if r.rec.Terminal {
		return r.in.Guest.SendInput(ctx, r.selector(), []byte{endOfTransmission}, true)
	}
	return r.in.Guest.CloseStdin(ctx, r.selector())
}

// endOfTransmission is the byte that Ctrl-D sends.
const endOfTransmission = 4

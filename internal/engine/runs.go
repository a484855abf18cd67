package engine

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A runView is a run as it was found. live is set if the run is in progress in
// this process or ended here a moment ago. Otherwise rec is the store's record.
type runView struct {
	e    *Engine
	rec  store.Run
	live *run.Run
}

func (v runView) files() runlog.Files {
	if v.live != nil {
		return v.live.Files()
	}
	return runlog.FilesOf(v.e.logs, v.rec.SandboxID, v.rec.ID)
}

// source returns the log of the run.
func (v runView) source() runlog.Source { return runlog.Source{Files: v.files(), Extents: v.extents} }

func (v runView) extents() ([runlog.Streams]runlog.Extent, error) {
	if v.live != nil {
		return v.live.Extents(), nil
	}
	xs, err := v.files().Extents()
	if err != nil || v.rec.Status != sandbox.RunFinished {
		return xs, err
	}
	for s, written := range [runlog.Streams]int64{runlog.Stdout: v.rec.StdoutBytes, runlog.Stderr: v.rec.StderrBytes} {
		if x := &xs[s]; written > x.Total && x.GapTo == 0 {
			x.GapFrom, x.GapTo, x.Total = x.Total, written, written // the log ended first
		}
	}
	return xs, nil
}

// findRun returns a run of p. If the owner process of its sandbox is dead, the
// sandbox is taken over with its runs, or its record is corrected as refresh
// does.
func (e *Engine) findRun(ctx context.Context, p sandbox.Principal, id string) (runView, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return runView{}, err
	}
	if !sandbox.ValidRunID(id) {
		return runView{}, request.NoRun(id)
	}
	for range 2 {
		r := e.runs.Find(id)
		e.runs.Touch(id)
		if r != nil {
			if r.Principal() != p {
				return runView{}, request.NoRun(id)
			}
			return runView{e: e, live: r}, nil
		}
		// WithoutCancel: the call is quick, and a caller whose context has
		// ended still gets the state of the run.
		rec, err := e.store.Run(context.WithoutCancel(ctx), id)
		if errors.Is(err, sandbox.NotFound) || err == nil && rec.Principal != p {
			return runView{}, request.NoRun(id)
		}
		if err != nil {
			return runView{}, err
		}
		mended, err := e.mendRun(ctx, rec)
		if err != nil && ctx.Err() == nil {
			return runView{}, err
		}
		if !mended || err != nil { // a caller that does not wait gets the record
			return runView{e: e, rec: rec}, nil
		}
	}
	return runView{}, sandbox.Errorf(sandbox.Unavailable, "run %s is being taken over", id)
}

// mendRun corrects the state of a run that is recorded as running, by checking
// its sandbox. It reports whether anything changed.
func (e *Engine) mendRun(ctx context.Context, rec store.Run) (bool, error) {
	if rec.Status == sandbox.RunFinished {
		return false, nil
	}
	sb, err := e.store.Sandbox(context.WithoutCancel(ctx), rec.SandboxID)
	if err != nil {
		return false, err
	}
	if sb.Owner == e.owner.ID() && e.live(sb.ID) != nil {
		return false, nil // the run is just beginning, or just ending
	}
	if b, err := e.adopt(ctx, sb); err != nil || b != nil {
		return b != nil, err
	}
	sb, err = e.refresh(ctx, sb)
	return err == nil && sb.State == sandbox.Stopped, err
}

// Wait returns a run when it has finished. If ctx ends first, it returns the
// present state of the run and ctx's error.
func (e *Engine) Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error) {
	return e.wait(ctx, p, runID, (*run.Run).Wait, func(sandbox.Run) bool { return false })
}

// WaitReady returns a service when it is ready or has finished, and any other run as
// Wait does. If ctx ends first, it returns the present state and ctx's error.
func (e *Engine) WaitReady(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error) {
	return e.wait(ctx, p, runID, (*run.Run).WaitReady, func(r sandbox.Run) bool {
		return r.Service != nil && r.Service.State != sandbox.ServiceStarting
	})
}

// wait waits for a run by the function live, or until its record suffices.
func (e *Engine) wait(ctx context.Context, p sandbox.Principal, runID string, live func(*run.Run, context.Context) (sandbox.Run, error), enough func(sandbox.Run) bool) (sandbox.Run, error) {
	const op = "wait for run"
	for {
		v, err := e.findRun(ctx, p, runID)
		if err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
		if v.live != nil {
			r, err := live(v.live, ctx)
			if err != nil && ctx.Err() == nil {
				err = sandbox.Wrap(err, op, runID)
			}
			return r, err
		}
		if v.rec.Status == sandbox.RunFinished || enough(v.rec.Run) {
			return v.rec.Run, nil
		}
		select {
		case <-ctx.Done():
			return v.rec.Run, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// StopRun kills a run's whole process tree and returns the finished run. A run
// in a context is interrupted first, so that the context keeps its state. If
// that does not end it, its interpreter is killed. StopRun returns a finished
// run unchanged. If ctx ends first, it returns the present state of the run and
// ctx's error, and the work goes on.
func (e *Engine) StopRun(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error) {
	const op = "stop run"
	v, err := e.findRun(ctx, p, runID)
	if err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	switch {
	case v.live != nil:
		if !e.spawn(func() { v.live.Kill(verdict.FateCancelled, nil) }) {
			return sandbox.Run{}, sandbox.Wrap(request.Closed(), op, runID)
		}
	case v.rec.Status == sandbox.RunFinished:
		return v.rec.Run, nil
	default:
		if err := e.stopOthersRun(ctx, v.rec); err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, runID)
		}
	}
	return e.Wait(ctx, p, runID)
}

// stopOthersRun kills a run in a sandbox of another process. That process then
// settles the run.
func (e *Engine) stopOthersRun(ctx context.Context, rec store.Run) error {
	sb, err := e.store.Sandbox(ctx, rec.SandboxID)
	if err != nil {
		return err
	}
	if sb.Driver != e.name {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "its sandbox was made by driver %s, and this is %s", sb.Driver, e.name),
			"use --driver %s", sb.Driver)
	}
	if err := e.store.RequestRunStop(ctx, rec.ID); err != nil {
		return err
	}
	handle, err := e.drv.Attach(ctx, sb.Ref)
	if driver.IsGone(err) {
		return nil // the other process will notice that
	}
	if err != nil {
		return err
	}
	if rec.Service != nil && rec.Service.Wake == sandbox.WakeRequest {
		// It may rest, and its guest would not answer.
		if err := driver.Resume(ctx, handle); err != nil && !driver.IsGone(err) {
			return err
		}
	}
	g := e.opts.dialGuest(handle)
	defer g.Close()
	if rec.Context != nil {
		err = g.InterruptExecution(ctx, rec.ID, &guestapi.InterruptRequest{GraceMillis: run.InterruptGrace.Milliseconds()})
	} else {
		err = g.Signal(ctx, guestapi.ProcessSelector{Tag: rec.ID}, guestapi.SIGKILL)
	}
	if errors.Is(err, sandbox.NotFound) {
		return nil
	}
	return err
}

// SendInput writes data to the input of a run that was started with KeepStdin
// or a terminal. It closes the input afterwards if eof is set. It returns when
// the program, or the pipe to it, has taken all data. The error is of kind
// Conflict if the run has finished or its input is closed.
func (e *Engine) SendInput(ctx context.Context, p sandbox.Principal, runID string, data []byte, eof bool) error {
	const op = "send input"
	if len(data) > request.MaxInput {
		return sandbox.Wrap(sandbox.WithHint(request.Invalid("text: %d bytes are more than %d", len(data), request.MaxInput), "send it in parts"), op, "")
	}
	r, err := e.openRun(ctx, p, runID)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if !r.KeepsStdin() {
		return sandbox.Wrap(sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "run_id: the input of run %s is closed", runID),
			"start the run so that its input stays open"), op, "")
	}
	return sandbox.Wrap(r.SendInput(ctx, data, eof), op, runID)
}

// Resize sets the size of a run's terminal.
func (e *Engine) Resize(ctx context.Context, p sandbox.Principal, runID string, size sandbox.TerminalSize) error {
	const op = "resize terminal"
	if err := request.CheckTerminal(size); err != nil {
		return sandbox.Wrap(err, op, "")
	}
	r, err := e.openRun(ctx, p, runID)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if !r.HasTerminal() {
		return sandbox.Wrap(sandbox.Errorf(sandbox.Conflict, "run_id: run %s has no terminal", runID), op, "")
	}
	return sandbox.Wrap(r.Resize(ctx, size), op, runID)
}

// openRun returns a run in progress in this process.
func (e *Engine) openRun(ctx context.Context, p sandbox.Principal, id string) (*run.Run, error) {
	v, err := e.findRun(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if v.live != nil {
		select {
		case <-v.live.Done():
			return nil, run.Finished(id)
		default:
			return v.live, nil
		}
	}
	if v.rec.Status == sandbox.RunFinished {
		return nil, run.Finished(id)
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "run_id: run %s belongs to another process", id),
		"use it through the server that started it; here it can be stopped, and its output read")
}

package engine

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Start begins a run and returns as soon as the run exists. Without a SandboxID
// it makes a sandbox first, which stays for its idle time. ctx bounds the
// start, not the run. The error is of kind Invalid if there is no such program,
// and of kind Unsupported if the language is not installed. In both cases there
// is no run.
func (e *Engine) Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error) {
	// The run owns the span once it exists.
	ctx, span := trace.Start(trace.With(ctx, e.opts.Trace), "run")
	span.Set("language", req.Language)
	r, err := e.startSpan(ctx, p, req, span)
	if err != nil {
		span.End(err)
		e.opts.Metrics.RunRefused(err)
	}
	return r, err
}

// KeyedRun returns the identifier of the run that p began with a key. The error is of
// kind NotFound if there is none, and Conflict if it was for another request.
func (e *Engine) KeyedRun(ctx context.Context, p sandbox.Principal, key sandbox.RunKey) (string, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return "", err
	}
	return e.store.KeyedRun(ctx, p, key)
}

func (e *Engine) startSpan(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest, span *trace.Active) (sandbox.Run, error) {
	const op = "start run"
	if err := request.CheckPrincipal(p); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	if err := e.rules.CheckRun(&req); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	prog, err := run.NewProgram(req, e.opts.Runners)
	if err != nil {
		of, ok, entryErr := e.entryProgram(ctx, p, &req)
		if entryErr != nil {
			err = entryErr
		}
		if !ok {
			if entryErr == nil {
				err = e.images.WithAdoption(ctx, p, req.Language, err)
			}
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
		prog = of
	}
	if req.SandboxID == "" && req.New.Image == "" {
		if req.New.Image, err = e.images.Default(ctx, p, req.Language); err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
	}
	if req.SandboxID != "" {
		if err := e.accounts.CheckRun(ctx, p); err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
		b, err := e.usable(ctx, p, req.SandboxID)
		if err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
		r, err := b.startRun(ctx, req, prog, span)
		return r, sandbox.Wrap(err, op, "")
	}
	b, err := e.create(ctx, p, req.New)
	if err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	r, err := b.startRun(ctx, req, prog, span)
	if err != nil {
		err = b.notStarted(err)
		// No caller knows the sandbox, so it would only wait for its idle
		// timeout.
		why := verdict.Reason{Cause: "the run that it was made for did not start", Code: sandbox.Cancelled}
		err = errors.Join(sandbox.Wrap(err, op, ""), b.Stop(context.WithoutCancel(ctx), why))
	}
	return r, err
}

// startRun begins a run in a sandbox. The run ends span.
func (b *liveSandbox) startRun(ctx context.Context, req sandbox.RunRequest, prog run.Program, span *trace.Active) (sandbox.Run, error) {
	env, err := prog.Environ(req, b.Policy(), b.env)
	if err != nil {
		return sandbox.Run{}, err
	}
	var release func()
	err = trace.Do(ctx, "wake sandbox", func(ctx context.Context) (err error) {
		release, err = b.use(ctx)
		return err
	})
	if err != nil {
		return sandbox.Run{}, err
	}
	undo, err := b.prepareUndo(ctx, &req)
	if err != nil {
		release()
		return sandbox.Run{}, err
	}
	order := run.Order{Request: req, Program: prog, Env: env, Release: release, Span: span, Undo: undo}
	r := b.ofRuns.New(ctx, order)
	if err := b.addRun(r); err != nil {
		r.Refuse()
		if undo != "" {
			err = errors.Join(err, b.Forget(context.WithoutCancel(ctx), undo))
		}
		release()
		return sandbox.Run{}, err
	}
	return r.Start(ctx, order)
}

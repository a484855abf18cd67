package engine

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Contexts lists the contexts of a sandbox. The call does not count as a use:
// the sandbox's idle time goes on.
func (e *Engine) Contexts(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Context, error) {
	const op = "list contexts"
	b, err := e.usable(ctx, p, sandboxID)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	release, err := b.peek(ctx)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	defer release()
	all, err := b.guest.Contexts(ctx)
	if err != nil {
		return nil, sandbox.Wrap(b.Explain(ctx, err), op, sandboxID)
	}
	list := make([]sandbox.Context, 0, len(all))
	for _, c := range all {
		name, ok := run.SplitContextID(c.ID, c.Language)
		if !ok {
			continue // the guest's, of a client that spoke to it directly
		}
		list = append(list, sandbox.Context{Name: name, Language: e.opts.Runners.OfKernel(c.Language), Version: c.Version, Busy: c.Busy, Runs: c.Runs})
	}
	return list, nil
}

// RemoveContext kills a context's interpreter, all processes that it started,
// and the run in progress, and removes the context. The next run starts a new
// interpreter.
func (e *Engine) RemoveContext(ctx context.Context, p sandbox.Principal, sandboxID, name, language string) error {
	const op = "remove context"
	if err := request.CheckContextName(name); err != nil {
		return sandbox.Wrap(err, op, "")
	}
	runner, err := e.opts.Runners.Find(language)
	if err == nil && runner.Kernel == "" {
		err = run.NoContexts(runner)
	}
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	b, err := e.usable(ctx, p, sandboxID)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	release, err := b.use(ctx)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	defer release()
	err = b.guest.RemoveContext(ctx, run.ContextID(name, runner.Kernel))
	if errors.Is(err, sandbox.NotFound) {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "context: there is no context %s of %s in the sandbox", name, runner.Language),
			"one is there from its first run on")
	}
	return sandbox.Wrap(b.Explain(ctx, err), op, sandboxID)
}

package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An execution is the additional state of a run in a context. The guest keeps
// the run by its identifier. It queues the run and interrupts it when its time
// is over. The run continues there when this process ends.
type execution struct {
	late string // source of the last output written, if that was late output; else ""

	// Guarded by the run's mu.
	began bool // its turn has come
	waits *sandbox.InputRequest
	fail  *sandbox.RunError
}

// newExecution makes r a run in a context.
func (r *Run) newExecution(name, language string) {
	r.x = &execution{}
	r.rec.Context = &sandbox.RunContext{Name: name, Language: language}
}

// resumeExecution makes r a run in a context that another process began.
func (r *Run) resumeExecution() error {
	results, err := runlog.ReopenResults(r.Files(), r.room)
	r.x, r.results = &execution{fail: results.Failure()}, results
	return err
}

// roomForLine waits for room for a long event. A sandbox has one at a time, and
// a principal a share of all, so that events without an end block no other
// principal.
func (r *Run) roomForLine(ctx context.Context) (give func(), err error) {
	select {
	case r.in.longEvent <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	hold, err := r.set.opts.LongEvents.Acquire(ctx, fair.Request{Principal: r.rec.Principal, Units: 1})
	if err != nil {
		<-r.in.longEvent
		return nil, err
	}
	return func() {
		hold.Release()
		<-r.in.longEvent
	}, nil
}

// latestEnd returns how long a run in a context may take from its start on,
// with the wait for its turn. It waits for the runs and requests in progress in
// the sandbox, and each of those ends at the longest timeout. One more stands
// for an execution whose caller has just gone. The bound does not depend on the
// guest.
func (r *Run) latestEnd() time.Duration {
	_, runs, requests := r.in.Life.Status()
	ahead := runs + requests // with the run itself, as the one more
	each := r.set.opts.MaxTimeout + InterruptGrace + Backstop
	if each >= sandbox.Forever/time.Duration(ahead+2) { // or the sum may overflow
		return sandbox.Forever
	}
	return time.Duration(ahead)*each + StartTimeout + r.rec.Timeout + InterruptGrace + Backstop
}

// setContext changes the description of the run's context. It copies the
// description first, because callers may hold the old one.
func (r *Run) setContext(f func(*sandbox.RunContext)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := *r.rec.Context
	f(&c)
	r.rec.Context = &c
}

// openContext starts a run in its context.
func (r *Run) openContext(req sandbox.RunRequest, runner *interpreter.Runner, env map[string]string) (guestlink.Events, error) {
	id := ContextID(req.Context, runner.Kernel)
	if req.Restart {
		if err := r.in.Guest.RestartContext(r.ctx, id); err != nil && !errors.Is(err, sandbox.NotFound) {
			return nil, err
		}
	}
	stream, err := r.in.Guest.Execute(r.ctx, sandbox.User, &guestapi.ExecuteRequest{
		Code:          req.Code,
		ContextID:     id,
		Create:        true,
		Language:      runner.Kernel,
		Env:           env,
		EnvVars:       req.Env,
		Prepare:       runner.Prepare,
		Stdin:         r.input,
		TimeoutMillis: r.rec.Timeout.Milliseconds(),
		GraceMillis:   InterruptGrace.Milliseconds(),
		Tag:           r.rec.ID,
		Previews:      true,
	}, r.roomForLine)
	if errors.Is(err, sandbox.NotFound) {
		return nil, r.set.opts.Missing(r.in.Image, runner.Missing)
	}
	if runner.Kernel == language.IPython && errors.Is(err, sandbox.Unsupported) {
		err = sandbox.WithHint(err, "install it (Debian and Ubuntu: apt-get install python3-ipython), or remove kernel: %s from the runner of %s", runner.Kernel, runner.Language)
	}
	return stream, err
}

// connect attaches to the run in its guest.
func (r *Run) connect() (guestlink.Events, error) {
	if r.x == nil {
		return r.in.Guest.Connect(r.ctx, r.selector(), r.have())
	}
	return r.in.Guest.ConnectExecution(r.ctx, r.rec.ID, r.roomForLine)
}

// signal asks the guest to end the run. The guest kills its process tree, or
// interrupts its context and kills the interpreter if that does not help.
// signal returns how long that may take.
func (r *Run) signal(ctx context.Context, f verdict.Fate) (time.Duration, error) {
	if r.x == nil {
		return EndTimeout, r.in.Guest.Signal(ctx, r.selector(), guestapi.SIGKILL)
	}
	req := &guestapi.InterruptRequest{GraceMillis: InterruptGrace.Milliseconds()}
	if f == verdict.FateTimeout {
		req.Kill = true // the guest missed its own timeout
	}
	return InterruptGrace + EndTimeout, r.in.Guest.InterruptExecution(ctx, r.rec.ID, req)
}

// ContextID returns the guest's identifier of the context with that name and
// language. The guest's own default contexts have identifiers of the same form.
func ContextID(name, language string) string { return name + "-" + language }

// SplitContextID is the inverse of ContextID.
func SplitContextID(id, language string) (name string, ok bool) {
	return strings.CutSuffix(id, "-"+language)
}

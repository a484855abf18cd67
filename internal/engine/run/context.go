package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
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
	end   *guestapi.ExecutionEnd
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

// contextStream presents the stream of a run in a context as the stream of a
// process. It passes events that a process does not have to the run.
type contextStream struct {
	r      *Run
	stream guestlink.Executions
}

// contextEvents returns the events of a stream of the run.
func (r *Run) contextEvents(stream guestlink.Executions) contextStream {
	stream.LimitLines(r.roomForLine)
	return contextStream{r, stream}
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

func (s contextStream) Close() error { return s.stream.Close() }

func (s contextStream) Next() (*guestapi.ProcessEvent, error) {
	for {
		ev, err := s.stream.Next()
		if err != nil {
			if errors.Is(err, guestapi.ErrLongEvent) && s.r.ctx.Err() == nil {
				// The event is lost: the guest sends it no second time.
				s.r.set.opts.Log.Warn("read event", "run", s.r.rec.ID, "error", err)
				s.r.spoil(err)
			}
			return nil, err
		}
		if pe := s.r.heard(ev); pe != nil {
			return pe, nil
		}
	}
}

// heard handles an event of a run in a context. It returns the event of a
// process that corresponds to it, or nil if there is none.
func (r *Run) heard(ev *guestapi.ExecuteEvent) *guestapi.ProcessEvent {
	if ev.Type != guestapi.ExecuteLate {
		r.x.late = ""
	}
	switch ev.Type {
	case guestapi.ExecuteCount:
		r.began(ev.ExecutionCount)
	case guestapi.ExecuteStdout:
		return &guestapi.ProcessEvent{Data: &guestapi.DataEvent{Stdout: []byte(ev.Text)}}
	case guestapi.ExecuteStderr:
		return &guestapi.ProcessEvent{Data: &guestapi.DataEvent{Stderr: []byte(ev.Text)}}
	case guestapi.ExecuteNotice:
		r.setContext(func(c *sandbox.RunContext) { c.Notice = excerpt.Cut(ev.Text, runlog.MaxErrorName) })
	case guestapi.ExecuteInput:
		r.mu.Lock()
		r.x.waits = &sandbox.InputRequest{Prompt: excerpt.Cut(ev.Prompt, runlog.MaxErrorText), Password: ev.Password}
		r.mu.Unlock()
		return &guestapi.ProcessEvent{Data: &guestapi.DataEvent{Stdout: []byte(ev.Prompt)}}
	case guestapi.ExecuteResult:
		r.show(ev.Result)
	case guestapi.ExecuteLate:
		if ev.Result != nil {
			r.show(ev.Result)
			return nil
		}
		return &guestapi.ProcessEvent{Data: r.lateData(ev)}
	case guestapi.ExecuteError:
		return &guestapi.ProcessEvent{Data: r.failed(ev.Error)}
	case guestapi.ExecuteEnd:
		return &guestapi.ProcessEvent{End: r.ended(ev.End)}
	}
	return nil
}

// began records that the turn of the run has come, and starts its deadline. The
// guest keeps the timeout, and the engine ends the run if the guest does not.
// Only the first such event counts: later ones give the run no more time.
func (r *Run) began(count int) {
	r.setContext(func(c *sandbox.RunContext) { c.Count = max(count, 0) })
	r.mu.Lock()
	again := r.x.began
	r.x.began = true
	r.mu.Unlock()
	if !again {
		r.setDeadline(r.rec.Timeout + InterruptGrace + Backstop)
	}
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

// show keeps a result, with its position in the output. If it cannot be kept,
// the run is ended, as for output.
func (r *Run) show(res *guestapi.Result) {
	xs := r.log.Extents()
	err := r.results.Add(sandbox.Result{
		Data: runlog.CleanResult(res.Data), Main: res.Main, Late: res.Late != 0, Previews: runlog.CleanPreviews(res),
		Stdout: xs[runlog.Stdout].Total, Stderr: xs[runlog.Stderr].Total,
	})
	r.keptOrBroken(err)
}

func (r *Run) keptOrBroken(err error) {
	if err != nil {
		r.set.opts.Log.Error("keep results", "run", r.rec.ID, "error", err)
		r.spoil(err)
	}
}

// failed keeps the exception that ended the run, which is the first that the
// guest tells of. It returns the traceback as output too, for callers that read
// only the output.
func (r *Run) failed(e *guestapi.RunError) *guestapi.DataEvent {
	fail := runlog.CleanError(e)
	r.mu.Lock()
	if r.x.fail == nil {
		r.x.fail = &fail
	}
	r.mu.Unlock()
	r.keptOrBroken(r.results.Fail(fail))
	text := fail.Traceback
	if text == "" {
		text = fail.Name + ": " + fail.Value
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	return &guestapi.DataEvent{Stderr: []byte(text)}
}

// lateData returns the output of an earlier run, or of a program that it left
// behind. A line before it marks the source.
func (r *Run) lateData(ev *guestapi.ExecuteEvent) *guestapi.DataEvent {
	whose := string(ev.Stream) + strconv.Itoa(ev.Run)
	var text string
	if r.x.late != whose || ev.Dropped > 0 {
		text = "[output of an earlier run in this context"
		if ev.Dropped > 0 {
			text += fmt.Sprintf("; %d bytes before this were dropped", ev.Dropped)
		}
		text += "]\n"
	}
	r.x.late = whose
	text += ev.Text
	if ev.Stream == guestapi.Stderr {
		return &guestapi.DataEvent{Stderr: []byte(text)}
	}
	return &guestapi.DataEvent{Stdout: []byte(text)}
}

// ended takes the end of the run. The event that it returns ends the pump; the
// verdict is on the end that is kept here.
func (r *Run) ended(end *guestapi.ExecutionEnd) *guestapi.EndEvent {
	r.mu.Lock()
	r.x.end, r.x.waits = end, nil
	r.mu.Unlock()
	r.setContext(func(c *sandbox.RunContext) { c.StateLost = end.StateLost })
	return &guestapi.EndEvent{}
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
	})
	if errors.Is(err, sandbox.NotFound) {
		return nil, r.set.opts.Missing(r.in.Image, runner.Missing)
	}
	if err != nil {
		return nil, err
	}
	return r.contextEvents(stream), nil
}

// connect attaches to the run in its guest.
func (r *Run) connect() (guestlink.Events, error) {
	if r.x == nil {
		xs := r.log.Extents()
		return r.in.Guest.Connect(r.ctx, r.selector(), guestapi.OutputCounts{Stdout: xs[runlog.Stdout].Total, Stderr: xs[runlog.Stderr].Total})
	}
	stream, err := r.in.Guest.ConnectExecution(r.ctx, r.rec.ID)
	if err != nil {
		return nil, err
	}
	return r.contextEvents(stream), nil
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

package run

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// CodeDir has a directory for each run in progress, with the files of its
// program. It is in the sandbox.
const CodeDir = "/tmp/.glovebox"

var errStartTimeout = fmt.Errorf("the sandbox did not start the program within %v", StartTimeout)

// An Order is a checked request for a run, with the additions of the engine.
type Order struct {
	Request sandbox.RunRequest
	Program Program
	Env     map[string]string // by Program.Environ
	Release func()            // ends the run's use of the sandbox
	Span    *trace.Active     // of the run, which ends it
	Undo    string            // the snapshot to which a failed run returns, or ""
}

// New returns a run that is not recorded yet. The caller must call Start or
// Refuse. ctx has the sink of the run's spans.
func (s *Sandbox) New(ctx context.Context, o Order) *Run {
	r := s.newRun(o)
	if runner := o.Program.Runner; runner != nil {
		r.language, r.rec.Language = runner.Language, runner.Language
	}
	r.release, r.span, r.ctx = o.Release, o.Span, trace.Into(r.ctx, ctx)
	o.Span.Set("run", r.rec.ID)
	o.Span.Set("sandbox", s.ID)
	if o.Program.context {
		r.newExecution(o.Request.Context, r.language)
	}
	return r
}

// Refuse ends a run that its sandbox does not take. The use of the sandbox stays
// the caller's.
func (r *Run) Refuse() {
	r.cancel()
	r.closeLog()
	r.room.Release()
}

// Start records a new run and starts its program, by the same order as New. ctx
// bounds the start, not the run. If the program does not start, nothing is left
// of the run.
func (r *Run) Start(ctx context.Context, o Order) (sandbox.Run, error) {
	req := o.Request
	// WithoutCancel: database/sql starts a goroutine for a context that can
	// end.
	err := trace.Do(context.WithoutCancel(ctx), "record run", func(ctx context.Context) error { return r.set.opts.Records.InsertRun(ctx, r.rec) })
	if err != nil {
		r.forgetUndo(ctx)
		r.drop()
		return sandbox.Run{}, err
	}
	if err = r.in.Copy.In(ctx); err == nil {
		r.workspace, err = r.in.Mount.Begin(ctx, r)
	}
	if err != nil {
		r.forgetUndo(ctx)
		r.drop()
		return sandbox.Run{}, errors.Join(err, r.set.opts.Records.DeleteRun(context.WithoutCancel(ctx), r.rec.ID))
	}
	stream, err := r.begin(ctx, o)
	if err != nil {
		r.in.Mount.Leave(r)
		err = r.in.Life.Explain(ctx, err)
		return sandbox.Run{}, errors.Join(err, r.discard())
	}
	started := r.rec.Run
	_, r.going = trace.Start(r.ctx, "program")
	r.publish()
	limit := r.rec.Timeout
	if r.x != nil {
		limit = r.latestEnd() // its timeout counts from its turn
	}
	r.setDeadline(limit)
	r.watchReady()
	r.watchPorts()
	r.in.Life.BusyFor(ctx, limit+Backstop)
	r.keepBaselineSoon()
	if len(req.Stdin) > 0 || r.input && !r.rec.KeepsStdin {
		r.set.opts.Work(func() { r.feed(req.Stdin, !r.rec.KeepsStdin) })
	}
	r.set.opts.Work(func() { r.pump(stream) })
	return started, nil
}

// begin starts the program of a run.
func (r *Run) begin(ctx context.Context, o Order) (guestlink.Events, error) {
	r.baseline = make(chan struct{})
	reads := r.set.opts.Work(func() {
		defer close(r.baseline)
		r.before, r.counted = r.in.Life.Incidents(r.ctx)
	})
	if !reads {
		close(r.baseline)
		return nil, request.Closed()
	}
	// The stream outlives ctx, but its opening does not: a guest that never
	// answers must not block the start forever.
	ctx, cancel := context.WithTimeoutCause(ctx, StartTimeout, errStartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, r.cancel)
	r.reached, r.countsReached = r.in.Traffic.Read(ctx)
	var stream guestlink.Events
	err := trace.Do(r.ctx, "start program", func(ctx context.Context) (err error) {
		stream, err = r.open(ctx, o)
		return err
	})
	if !stop() && err == nil {
		stream.Close()
		err = ctx.Err()
	}
	if err != nil && errors.Is(context.Cause(ctx), errStartTimeout) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w: %w", errStartTimeout, err)
	}
	if err != nil && ctx.Err() != nil {
		err = sandbox.Errorf(sandbox.Unavailable, "the start was cancelled: %w", errors.Join(ctx.Err(), err))
	}
	return stream, err
}

// open starts the program in the first way that works.
func (r *Run) open(ctx context.Context, o Order) (guestlink.Events, error) {
	req, prog := o.Request, o.Program
	if prog.context {
		return r.openContext(req, prog.Runner, o.Env)
	}
	start := &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Envs: o.Env, Cwd: req.Dir},
		Tag:     r.rec.ID,
		Stdin:   &r.input,
		Keep:    true,
	}
	if req.PTY != nil {
		start.PTY = &guestapi.PTY{Size: &guestapi.PTYSize{Cols: uint32(req.PTY.Cols), Rows: uint32(req.PTY.Rows)}}
	}
	opts := guestapi.StartOptions{User: sandbox.User, Timeout: r.rec.Timeout + Backstop}
	if req.Root {
		opts.User = sandbox.Root
	}
	if req.As != "" {
		opts.User = req.As
	}
	var err error
	if start.Plots, err = r.openPlots(req, prog, opts.User); err != nil {
		return nil, err
	}
	if prog.Runner == nil {
		start.Process.Cmd, start.Process.Args = prog.Argv[0], prog.Argv[1:]
		stream, err := r.startProgram(start, opts)
		r.plain = prog.shell != nil && err == nil
		if prog.shell != nil && (errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Invalid)) {
			// The command may be a word that only the shell knows. Otherwise the
			// shell's own error is the better one.
			start.Process.Cmd, start.Process.Args = prog.shell[0], prog.shell[1:]
			stream, err = r.startProgram(start, opts)
		}
		if errors.Is(err, sandbox.NotFound) {
			return nil, r.notFound(req, prog.Argv[0])
		}
		return stream, err
	}
	dir := r.makeCodeDir()
	file := path.Join(dir, prog.Runner.FileName())
	err = trace.Do(ctx, "write code", func(context.Context) error {
		_, err := r.in.Guest.Write(r.ctx, file, strings.NewReader(req.Code), guestapi.WriteOptions{User: sandbox.User})
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "write code", "")
	}
	known, isKnown := r.in.variant(r.language)
	for i, v := range prog.Runner.Variants {
		if isKnown && i != known {
			continue
		}
		if !isKnown {
			if ok, err := v.Works(r.ctx, r.in.exec); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		argv := v.Argv(dir, prog.Runner.FileName(), req.Args)
		start.Process.Cmd, start.Process.Args = argv[0], argv[1:]
		stream, err := r.startProgram(start, opts)
		if errors.Is(err, sandbox.NotFound) {
			if err := r.checkDir(req); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil && !isKnown {
			r.in.setVariant(r.language, i)
		}
		return stream, err
	}
	r.in.forgetVariant(r.language)
	return nil, r.set.opts.Missing(r.in.Image, prog.Runner.Missing)
}

// makeCodeDir returns the directory of the run's files, which its end removes.
func (r *Run) makeCodeDir() string {
	r.codeDir = path.Join(CodeDir, r.rec.ID)
	return r.codeDir
}

// notFound returns the error for a start that found no program. Its working
// directory may be missing instead.
func (r *Run) notFound(req sandbox.RunRequest, program string) error {
	if err := r.checkDir(req); err != nil {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%w %s in the sandbox", sandbox.ErrNoProgram, excerpt.Quote(program)),
		"check the spelling, or use a shell command")
}

func (r *Run) checkDir(req sandbox.RunRequest) error {
	if req.Dir == "" {
		return nil
	}
	user := sandbox.User
	if req.Root {
		user = sandbox.Root
	}
	_, err := r.in.Guest.Stat(r.ctx, req.Dir, guestapi.FileOptions{User: user})
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.WithHint(request.Invalid("cwd: there is no directory %s in the sandbox", excerpt.Quote(req.Dir)), "make it first, or leave it out")
	}
	return err
}

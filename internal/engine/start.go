package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// codeDir has a directory for each run in progress, with the files of its
// program.
const codeDir = "/tmp/.glovebox"

var errStartTimeout = fmt.Errorf("the sandbox did not start the program within %v", startTimeout)

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

func (e *Engine) startSpan(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest, span *trace.Active) (sandbox.Run, error) {
	const op = "start run"
	if err := request.CheckPrincipal(p); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	if err := e.rules.CheckRun(&req); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	prog, err := e.newProgram(req)
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

// A program is what a request asks to run, with every way of starting it that
// may work.
type program struct {
	runner *interpreter.Runner // of code; nil for a command
	live   bool                // the code runs in a context
	argv   []string            // of a command
	shell  []string            // the same command in a shell, if argv has its words
	env    map[string]string   // variables that the runner adds
}

// runCommands runs each of its parameters as a shell command and stops at the
// first failure. The commands are parameters, not part of the script, so they
// need no quoting.
const runCommands = `for command do /bin/sh -c "$command" || exit "$?"; done`

func (e *Engine) newProgram(req sandbox.RunRequest) (program, error) {
	switch {
	case len(req.Argv) > 0:
		return program{argv: req.Argv}, nil
	case len(req.Commands) == 1:
		shell := []string{"/bin/sh", "-c", req.Commands[0]}
		if words := request.PlainWords(req.Commands[0]); words != nil {
			return program{argv: words, shell: shell}, nil
		}
		return program{argv: shell}, nil
	case len(req.Commands) > 1:
		return program{argv: append([]string{"/bin/sh", "-c", runCommands, "sh"}, req.Commands...)}, nil
	}
	runner, err := e.opts.Runners.Find(cmp.Or(req.Language, language.Default))
	if err != nil {
		return program{}, err
	}
	dir := req.Dir
	if dir == "" {
		dir = sandbox.WorkDir
	}
	if runner.Kernel == "" && req.Context != "" && (req.Context != sandbox.DefaultContext || req.Restart) {
		return program{}, noContexts(runner)
	}
	return program{runner: &runner, live: runner.Kernel != "" && req.Context != "", env: runner.Environ(dir)}, nil
}

// startRun begins a run in a box. The run ends span.
func (b *liveSandbox) startRun(ctx context.Context, req sandbox.RunRequest, prog program, span *trace.Active) (sandbox.Run, error) {
	env := interpreter.PackageEnv()
	if b.policy() == sandbox.NetworkNone {
		maps.Copy(env, noNetworkEnv)
	}
	maps.Copy(env, prog.env)
	maps.Copy(env, b.env)
	if !prog.live { // a context has its own environment, and openContext adds req.Env for this run
		maps.Copy(env, req.Env)
	}
	if request.TextSize(prog.argv, env)+request.TextSize(req.Args, nil) > request.MaxTexts {
		return sandbox.Run{}, request.TooMuchText()
	}
	var release func()
	err := trace.Do(ctx, "wake sandbox", func(ctx context.Context) (err error) {
		release, err = b.use(ctx)
		return err
	})
	if err != nil {
		return sandbox.Run{}, err
	}
	r := b.newRun(req)
	if prog.runner != nil {
		r.language, r.rec.Language = prog.runner.Language, prog.runner.Language
	}
	r.release, r.span, r.ctx = release, span, trace.Into(r.ctx, ctx)
	span.Set("run", r.rec.ID)
	span.Set("sandbox", b.id)
	if prog.live {
		r.newExecution(req.Context, prog.runner.Language)
	}
	if err := b.addRun(r); err != nil {
		release()
		return sandbox.Run{}, err
	}
	// WithoutCancel: database/sql starts a goroutine for a context that can
	// end.
	err = trace.Do(context.WithoutCancel(ctx), "record run", func(ctx context.Context) error { return b.e.store.InsertRun(ctx, r.rec) })
	if err != nil {
		r.drop()
		return sandbox.Run{}, err
	}
	if err = b.copy.In(ctx); err == nil {
		r.workspace, err = b.mount.Begin(ctx, r)
	}
	if err != nil {
		r.drop()
		return sandbox.Run{}, errors.Join(err, b.e.store.DeleteRun(context.WithoutCancel(ctx), r.rec.ID))
	}
	stream, err := r.begin(ctx, req, prog, env)
	if err != nil {
		b.mount.Leave(r)
		err = b.explain(ctx, err)
		return sandbox.Run{}, errors.Join(err, r.discard())
	}
	started := r.rec.Run
	_, r.going = trace.Start(r.ctx, "program")
	r.publish()
	if r.x == nil {
		r.setDeadline(r.rec.Timeout)
	} else {
		r.setDeadline(r.latestEnd()) // its timeout counts from its turn
	}
	r.keepBaselineSoon()
	if len(req.Stdin) > 0 || r.input && !r.rec.KeepsStdin {
		b.e.work(func() { r.feed(req.Stdin, !r.rec.KeepsStdin) })
	}
	b.e.work(func() { r.pump(stream) })
	return started, nil
}

// begin starts the program of a run.
func (r *run) begin(ctx context.Context, req sandbox.RunRequest, prog program, env map[string]string) (guestlink.Events, error) {
	b := r.b
	r.baseline = make(chan struct{})
	reads := b.e.work(func() {
		defer close(r.baseline)
		r.before, r.counted, _ = driver.ReadIncidents(r.ctx, b.drv)
		b.noteKills(r.before)
	})
	if !reads {
		close(r.baseline)
		return nil, request.Closed()
	}
	// The stream outlives ctx, but its opening does not: a guest that never
	// answers must not block the start forever.
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errStartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, r.cancel)
	r.reached, r.countsReached = b.readTraffic(ctx)
	var stream guestlink.Events
	err := trace.Do(r.ctx, "start program", func(ctx context.Context) (err error) {
		stream, err = r.open(ctx, req, prog, env)
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
func (r *run) open(ctx context.Context, req sandbox.RunRequest, prog program, env map[string]string) (guestlink.Events, error) {
	if prog.live {
		return r.openContext(req, prog.runner, env)
	}
	start := &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Envs: env, Cwd: req.Dir},
		Tag:     r.rec.ID,
		Stdin:   &r.input,
		Keep:    true,
	}
	if req.PTY != nil {
		start.PTY = &guestapi.PTY{Size: &guestapi.PTYSize{Cols: uint32(req.PTY.Cols), Rows: uint32(req.PTY.Rows)}}
	}
	opts := guestapi.StartOptions{User: sandbox.User, Timeout: r.rec.Timeout + backstop}
	if req.Root {
		opts.User = sandbox.Root
	}
	if req.As != "" {
		opts.User = req.As
	}
	if prog.runner == nil {
		start.Process.Cmd, start.Process.Args = prog.argv[0], prog.argv[1:]
		stream, err := r.b.guest.Start(r.ctx, start, opts)
		r.plain = prog.shell != nil && err == nil
		if prog.shell != nil && (errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Invalid)) {
			// The command may be a word that only the shell knows. Otherwise the
			// shell's own error is the better one.
			start.Process.Cmd, start.Process.Args = prog.shell[0], prog.shell[1:]
			stream, err = r.b.guest.Start(r.ctx, start, opts)
		}
		if errors.Is(err, sandbox.NotFound) {
			return nil, r.notFound(req, prog.argv[0])
		}
		return stream, err
	}
	dir := path.Join(codeDir, r.rec.ID)
	r.codeDir = dir
	file := path.Join(dir, prog.runner.FileName())
	err := trace.Do(ctx, "write code", func(context.Context) error {
		_, err := r.b.guest.Write(r.ctx, file, strings.NewReader(req.Code), guestapi.WriteOptions{User: sandbox.User})
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "write code", "")
	}
	b := r.b
	b.mu.Lock()
	known, isKnown := b.variants[prog.runner.Language]
	b.mu.Unlock()
	for i, v := range prog.runner.Variants {
		if isKnown && i != known {
			continue
		}
		if !isKnown {
			if ok, err := v.Works(r.ctx, b.exec); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		argv := v.Argv(dir, prog.runner.FileName(), req.Args)
		start.Process.Cmd, start.Process.Args = argv[0], argv[1:]
		stream, err := b.guest.Start(r.ctx, start, opts)
		if errors.Is(err, sandbox.NotFound) {
			if err := r.checkDir(req); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil && !isKnown {
			b.mu.Lock()
			b.variants[prog.runner.Language] = i
			b.mu.Unlock()
		}
		return stream, err
	}
	b.mu.Lock()
	delete(b.variants, prog.runner.Language) // the interpreter may have been removed
	b.mu.Unlock()
	return nil, b.e.missing(b.rec.Image, prog.runner.Missing)
}

// notFound returns the error for a start that found no program. Its working
// directory may be missing instead.
func (r *run) notFound(req sandbox.RunRequest, program string) error {
	if err := r.checkDir(req); err != nil {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%w %s in the sandbox", errNoProgram, excerpt.Quote(program)),
		"check the spelling, or use a shell command")
}

var errNoProgram = errors.New("command: there is no program")

func (r *run) checkDir(req sandbox.RunRequest) error {
	if req.Dir == "" {
		return nil
	}
	user := sandbox.User
	if req.Root {
		user = sandbox.Root
	}
	_, err := r.b.guest.Stat(r.ctx, req.Dir, guestapi.FileOptions{User: user})
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.WithHint(request.Invalid("cwd: there is no directory %s in the sandbox", excerpt.Quote(req.Dir)), "make it first, or leave it out")
	}
	return err
}

// noteKills records how many memory kills a box had.
func (b *liveSandbox) noteKills(in driver.Incidents) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kills = max(b.kills, in.MemoryKills)
}

// explain turns the error of an unreachable guest into the reason why its box
// stopped. It returns err if the box did not stop.
func (b *liveSandbox) explain(ctx context.Context, err error) error {
	if !errors.Is(err, sandbox.Unavailable) || ctx.Err() != nil {
		return err
	}
	probe, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if b.dead(probe) {
		b.lost()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if stopped := b.stoppedLocked(); stopped != nil {
		return stopped
	}
	return err
}

// noContexts is the error for a context of a language that has none.
func noContexts(r interpreter.Runner) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "context: programs of %s have no contexts", r.Language),
		"leave out context: each program then runs by itself, and files are what it leaves")
}

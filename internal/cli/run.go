package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/advice"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/results"
	"github.com/glovebox-dev/glovebox/internal/cli/screen"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// newFlags are the flags that describe a new sandbox.
type newFlags struct {
	image     string
	memory    config.Bytes
	disk      config.Bytes
	cpus      float64
	processes int
	env       []string
	network   []string
	workspace string
	volumes   []string
}

func (f *newFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.image, "image", "", "root filesystem: a `reference` such as python:3.12-slim, or host (default): this machine's system directories, read-only")
	fs.Var(&f.memory, "memory", "limit of memory, such as 512MiB or 2g")
	fs.Var(&f.disk, "disk", "limit of disk space, such as 1GiB")
	fs.Float64Var(&f.cpus, "cpus", 0, "limit of processor time in `CPUs`, such as 0.5")
	fs.IntVar(&f.processes, "processes", 0, "largest `number` of processes and threads at one time")
	fs.StringVar(&f.workspace, "workspace", "", "mount the workspace of this `name` at /data; its files outlive the sandbox")
	fs.StringArrayVar(&f.volumes, "volume", nil, "with --workspace: mount another workspace, too, by `NAME:PATH`, such as models:/mnt/models; with :ro, read-only")
	fs.StringSliceVar(&f.network, "network", nil, "network `rules` such as none, internet, pypi.org, *.example.com:443, 10.1.0.0/16; default none")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set the environment variable `NAME=VALUE` in the sandbox; NAME alone takes the value from here")
}

// grant allows the network policy of --network if the configuration has none:
// the user at the command line is the operator.
func (f *newFlags) grant(c *config.Config) error {
	if len(c.Network.Allow) == 0 {
		c.Network.Allow = f.network
	}
	return nil
}

// request returns the request for the sandbox. getenv returns the values of
// variables that --env names without a value.
func (f *newFlags) request(getenv func(string) string) (sandbox.CreateRequest, error) {
	env := map[string]string{}
	for _, e := range f.env {
		name, value, ok := strings.Cut(e, "=")
		if name == "" {
			return sandbox.CreateRequest{}, console.UsageError("--env: %q has no name before =", e)
		}
		if !ok {
			value = getenv(name)
		}
		env[name] = value
	}
	network, err := sandbox.ParseNetwork(f.network...)
	if err != nil {
		return sandbox.CreateRequest{}, sandbox.WithHint(console.UsageError("--network: %w", err), "%s", sandbox.HintOf(err))
	}
	volumes := make([]sandbox.Volume, len(f.volumes))
	for i, text := range f.volumes {
		if volumes[i], err = sandbox.ParseVolume(text); err != nil {
			return sandbox.CreateRequest{}, sandbox.WithHint(console.UsageError("--volume: %w", err), "%s", sandbox.HintOf(err))
		}
	}
	return sandbox.CreateRequest{
		Image:   f.image,
		Env:     env,
		Network: network,

		Workspace: f.workspace,
		Volumes:   volumes,

		Limits: sandbox.Limits{
			CPUs: f.cpus, MemoryBytes: int64(f.memory), DiskBytes: int64(f.disk), Processes: f.processes,
		},
	}, nil
}

type runFlags struct {
	newFlags
	language string
	code     string
	hasCode  bool
	timeout  config.Duration
	untimed  bool // --timeout 0
	root     bool
	trace    bool
	results  string

	detachFlags
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [-c CODE | FILE | -] [ARGS...]",
		Short: "Run code in a fresh sandbox",
		Long: `Run a program in a fresh sandbox, show its output as it comes, and remove the
sandbox. The program can read standard input. With -, standard input is the text
of the program instead.

All arguments after FILE belong to the program, even if they begin with a dash, so
put the flags of glovebox before FILE.

With --image and no program, run the entry point of the image in the image's
working directory. Its arguments come from the image, or are the arguments after
--.

Plots of matplotlib in Python are results: figures that plt.show() shows, and
figures that are open at the end of the program. A terminal that can display
pictures (kitty, Ghostty, iTerm2, WezTerm, mintty, foot, mlterm, contour, Konsole
22.04) shows them after the output. GLOVEBOX_PICTURES names the protocol of
another terminal: kitty, iterm2 or sixel; with none, no terminal shows them.
--results saves them as files, and --json includes them. This does not apply if
the program or MPLBACKEND chooses a backend.

With --detach, the server on the state directory (glovebox serve) makes the sandbox,
and runs the program as a service: as long as its sandbox. The command prints the
names of the run and the sandbox, and returns when the service is ready. glovebox
logs, ps, forward and stop take those names. With --timeout and without --name,
--restart, --ready and --wake, the program is a run, which ends after that time at
the latest.

After a run with --workspace on a terminal, a line names the files that the
program created (+), changed (~) and removed (-).

The exit status is the program's own, or
    2  the command line, the program's file or the configuration is wrong
  124  it took longer than --timeout
  125  Glovebox failed, not the program; other commands exit with 1 then
  130  you cancelled it with Ctrl-C
  137  it used more than --memory`,
		Example: `  glovebox run -c 'print(6*7)'
  glovebox run script.js --verbose input.txt
  glovebox run -l bash -c 'echo "$1"' hello
  glovebox run - < program.py
  seq 10 | glovebox run -c 'import sys; print(sum(map(int, sys.stdin)))'
  glovebox run --timeout 5s --memory 256m --cpus 0.5 suspicious.py
  glovebox run --image glovebox/tool -- --help
  glovebox run --detach --restart always --ready port:8000 server.py
  glovebox run --json -c 'print(1)' | jq -r .verdict.code`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.flags.adjust = f.grant
			f.hasCode = cmd.Flags().Changed("code")
			f.untimed = cmd.Flags().Changed("timeout") && f.timeout == 0
			req, err := p.runRequest(cmd.Context(), f, args, cmd.ArgsLenAtDash())
			if err != nil {
				return console.Broken(err)
			}
			if err := f.detachFlags.apply(cmd, &req); err != nil {
				return err
			}
			if f.detach {
				return console.Broken(p.runDetached(cmd.Context(), req))
			}
			dir, err := results.Open(f.results)
			if err != nil {
				return console.UsageError("--results: %w", err)
			}
			defer dir.Close()
			if f.trace {
				return console.Broken(p.runTraced(cmd.Context(), req, dir))
			}
			return console.Broken(p.runOnce(cmd.Context(), req, dir))
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false) // flags after FILE are the program's
	fs.StringVarP(&f.language, "language", "l", "", "`language` of the program; default: from the file's name, else python")
	fs.StringVarP(&f.code, "code", "c", "", "`text` of the program")
	fs.Var(&f.timeout, "timeout", "limit of the run's duration, such as 5m; 0 is none; default 30s (GLOVEBOX_TIMEOUT)")
	fs.Lookup("timeout").DefValue = ""
	fs.BoolVar(&f.root, "root", false, "run as root of the sandbox")
	fs.StringVar(&f.results, "results", "", "save plots as files in this `directory`: plot-1.png, plot-2.png")
	fs.BoolVar(&f.trace, "trace", false, "show the duration of each step at the end")
	f.detachFlags.add(cmd)
	f.newFlags.add(cmd)
	p.addJSON(cmd)
	return cmd
}

// runTraced is runOnce with a table of where the time went.
func (p *program) runTraced(ctx context.Context, req sandbox.RunRequest, dir *results.Dir) error {
	var r trace.Recording
	ctx, span := trace.Start(trace.With(ctx, r.Take), "glovebox run")
	err := p.runOnce(ctx, req, dir)
	span.End(nil)
	return errors.Join(err, trace.Table(p.Err, r.Spans()))
}

// runRequest builds a run's request from the command line. dash is 0 if "--" comes
// before all arguments, or -1.
func (p *program) runRequest(ctx context.Context, f runFlags, args []string, dash int) (sandbox.RunRequest, error) {
	var req sandbox.RunRequest
	switch {
	case dash >= 0 || f.hasCode:
		req.Args, args = args, nil
	case len(args) > 0:
		req.Args, args = args[1:], args[:1]
		if len(req.Args) > 0 && req.Args[0] == "--" {
			req.Args = req.Args[1:] // it separates FILE from its arguments
		}
	}
	if len(args) == 0 && !f.hasCode && f.language == "" && f.image != "" && f.image != sandbox.ImageHost {
		return f.complete(req, p.Getenv) // runs the image's entry point; see entryPoint
	}
	if len(args) == 0 && !f.hasCode {
		return req, sandbox.WithHint(console.UsageError("nothing to run"),
			"pass -c CODE, a file, or - to read the program from standard input")
	}
	req.Language, req.KeepStdin = f.language, true
	switch {
	case f.hasCode:
		req.Code = f.code
	case args[0] == "-":
		code, err := io.ReadAll(io.LimitReader(p.In, maxProgram+1))
		if err != nil {
			return req, fmt.Errorf("read program from standard input: %w", err)
		}
		req.Code, req.KeepStdin = string(code), false
	default:
		code, err := os.ReadFile(args[0])
		if err != nil {
			return req, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "read program: %w", err), "name a file, or pass the text of the program with -c")
		}
		req.Code = string(code)
		if req.Language == "" {
			c, err := p.load()
			if err != nil {
				return req, err
			}
			language, known, err := app.LanguageOf(c.Languages, args[0], req.Code)
			if err == nil && language == "" {
				language, err = p.imageLanguage(ctx, args[0])
			}
			if err != nil {
				return req, err
			}
			if language == "" {
				return req, sandbox.WithHint(console.UsageError("%s: neither the name nor a first line like #!/usr/bin/env python3 shows the language", filepath.Base(args[0])),
					"name the language with -l: %s", strings.Join(known, ", "))
			}
			req.Language = language
		}
	}
	if req.Code == "" {
		return req, sandbox.WithHint(console.UsageError("nothing to run: the program is empty"),
			"pass -c CODE, a file, or - to read the program from standard input")
	}
	if len(req.Code) > maxProgram {
		return req, console.UsageError("the program has more than %s", sandbox.FormatBytes(maxProgram))
	}
	if req.Language == "" {
		req.Language = language.Default
	}
	return f.complete(req, p.Getenv)
}

// complete sets the fields of a request that do not depend on the program.
func (f *runFlags) complete(req sandbox.RunRequest, getenv func(string) string) (sandbox.RunRequest, error) {
	var err error
	req.New, err = f.request(getenv)
	req.Plots = true
	if f.untimed {
		f.timeout = config.Duration(sandbox.Forever)
	}
	req.Timeout, req.Root, req.KeepStdin = time.Duration(f.timeout), f.root, req.KeepStdin || req.Code == ""
	return req, err
}

// entryPoint completes a request without a program. It runs the image's entry
// point with the request's arguments, or with the image's command if there are
// none.
func entryPoint(ctx context.Context, sys *app.System, req *sandbox.RunRequest) error {
	images, err := sys.Images()
	if err != nil {
		return err
	}
	i, err := images.Image(ctx, req.New.Image)
	if err != nil {
		return err
	}
	args := req.Args
	if len(args) == 0 {
		args = i.Config.Cmd
	}
	req.Argv, req.Args = slices.Concat(i.Config.Entrypoint, args), nil
	if req.New.Workspace == "" {
		req.Dir = path.Join("/", i.Config.WorkDir)
	}
	if len(req.Argv) == 0 {
		return sandbox.WithHint(console.UsageError("nothing to run: image %s has no entry point and no command", req.New.Image),
			"pass -c CODE, a file, or a command after --")
	}
	return nil
}

// imageLanguage returns the language of a local image whose label declares the
// file's extension. It returns "" if there is none.
func (p *program) imageLanguage(ctx context.Context, file string) (language string, err error) {
	sys, err := p.open(ctx, func(o *app.Options) { o.Passive = true })
	if err != nil {
		return "", err
	}
	defer p.close(ctx, sys, &err)
	return sys.Engine.LanguageByExtension(ctx, sandbox.Local, strings.TrimPrefix(filepath.Ext(file), ".")), nil
}

// maxProgram is the maximum size of a program, in bytes.
const maxProgram = 16 << 20

// runOnce runs req in a new sandbox, and removes the sandbox. It saves results in
// dir if that is not nil.
func (p *program) runOnce(ctx context.Context, req sandbox.RunRequest, dir *results.Dir) (err error) {
	var sys *app.System
	err = trace.Do(ctx, "open", func(ctx context.Context) (err error) {
		sys, err = p.open(ctx, func(o *app.Options) { o.Secrets, o.CommandLine = true, true })
		return err
	})
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	p.sayFallback(sys)

	if err := p.fetchImage(ctx, sys, req.New.Image); err != nil {
		return err
	}
	if req.Code == "" {
		if err := entryPoint(ctx, sys, &req); err != nil {
			return err
		}
	}
	if fd, ok := console.Terminal(p.Out); ok && !p.flags.json {
		req.SixelWidth = screen.SixelWidth(fd, p.Getenv)
	}
	run, err := sys.Engine.Start(ctx, sandbox.Local, req)
	if err != nil {
		if ctx.Err() != nil {
			return &console.ExitError{Status: console.StatusCancelled}
		}
		return err
	}
	defer p.removeSandbox(ctx, sys, run.SandboxID)
	if req.KeepStdin {
		go p.feed(ctx, sys, run.ID)
	}
	if p.flags.json {
		return p.finishJSON(ctx, sys, run.ID, dir)
	}
	err = sys.Engine.Follow(ctx, sandbox.Local, run.ID, p.write)
	if ctx.Err() != nil {
		return &console.ExitError{Status: console.StatusCancelled}
	}
	if errors.Is(err, syscall.EPIPE) {
		return &console.ExitError{Status: console.StatusNoReader} // the reader, such as head, has closed the pipe
	}
	if err != nil {
		return fmt.Errorf("show output: %w", err)
	}
	run, err = sys.Engine.Wait(ctx, sandbox.Local, run.ID)
	if err != nil {
		return err
	}
	if err := p.showResults(ctx, sys, run.ID, dir); err != nil {
		return err
	}
	if _, seen := console.Terminal(p.Err); seen && req.New.Workspace != "" {
		if line := changesLine(run.Changes); line != "" {
			p.Say("%s", line)
		}
	}
	return p.verdict(run)
}

// verdict returns an error with the run's exit status, or nil on success. The
// error has a message only if the program could not report the problem itself.
func (p *program) verdict(run sandbox.Run) error {
	status := console.RunStatus(run)
	if status == 0 {
		return nil
	}
	v := run.Verdict
	if v.Code == sandbox.Failed && run.ExitCode != nil {
		// The program has reported its own failure.
		if next := advice.Next(v); next != "" {
			p.Hint(next)
		}
		return &console.ExitError{Status: status}
	}
	err := sandbox.Errorf(sandbox.Conflict, "%s: %s", v.Code, v.Cause)
	if next := advice.Next(v); next != "" {
		err = sandbox.WithHint(err, "%s", next)
	}
	return &console.ExitError{Status: status, Err: err}
}

// A runResult is the JSON output of a run.
type runResult struct {
	sandbox.Run
	sandbox.Output
	DurationMillis int64 `json:"duration_ms"`
	// Boundary is the boundary between the program and this machine.
	Boundary sandbox.Control `json:"boundary"`
	// Results are the plots. OmittedResults is the number of lost plots.
	Results        []results.Form `json:"results,omitempty"`
	OmittedResults int            `json:"omitted_results,omitempty"`
}

// maxJSONOutput bounds the output in a run's JSON, in bytes. Beyond it, the
// middle is dropped and counted; glovebox logs has the rest.
const maxJSONOutput = 16 << 20

func (p *program) finishJSON(ctx context.Context, sys *app.System, id string, dir *results.Dir) error {
	run, err := sys.Engine.Wait(ctx, sandbox.Local, id)
	if ctx.Err() != nil {
		// Print the result of a cancelled run, too.
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if _, err := sys.Engine.StopRun(rest, sandbox.Local, id); err != nil {
			return err
		}
		ctx = rest
		run, err = sys.Engine.Wait(rest, sandbox.Local, id)
	}
	if err != nil {
		return err
	}
	out, err := sys.Engine.Output(ctx, sandbox.Local, id, maxJSONOutput)
	if err != nil {
		return err
	}
	box, err := sys.Engine.Get(ctx, sandbox.Local, run.SandboxID)
	if err != nil {
		return err
	}
	res, err := sys.Engine.Results(ctx, sandbox.Local, id)
	if err != nil {
		return err
	}
	forms, err := results.Forms(res, dir)
	if err != nil {
		return err
	}
	if err := p.PrintJSON(runResult{
		Run: run, Output: out, DurationMillis: run.Ended.Sub(run.Started).Milliseconds(),
		Boundary: box.Receipt.Control(sandbox.ControlBoundary),
		Results:  forms, OmittedResults: res.Omitted,
	}); err != nil {
		return err
	}
	if status := console.RunStatus(run); status != 0 {
		return &console.ExitError{Status: status}
	}
	return nil
}

// feed copies standard input to the run until either ends.
func (p *program) feed(ctx context.Context, sys *app.System, id string) {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.In.Read(buf)
		if sendErr := sys.Engine.SendInput(ctx, sandbox.Local, id, buf[:n], err != nil); sendErr != nil || err != nil {
			return // the run has ended or closed its input
		}
	}
}

// cleanupTime is the timeout of the clean-up after a command's end.
const cleanupTime = 15 * time.Second

// removeSandbox stops a sandbox that this command made, even if ctx ended.
func (p *program) removeSandbox(ctx context.Context, sys *app.System, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	ctx, span := trace.Start(ctx, "remove sandbox")
	defer span.End(nil)
	if err := sys.Engine.Stop(ctx, sandbox.Local, id); err != nil && !errors.Is(err, sandbox.NotFound) {
		p.Say("warning: sandbox %s may not have been removed: %v", id, err)
	}
}

// close closes the system, even if ctx ended. It adds errors to *err. If *err
// holds the exit status of a program, it only prints them.
func (p *program) close(ctx context.Context, sys *app.System, err *error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	closeErr := trace.Do(ctx, "close", sys.Close)
	if _, ok := errors.AsType[*console.ExitError](*err); ok && closeErr != nil {
		p.Say("warning: %v", closeErr)
		return
	}
	*err = errors.Join(*err, closeErr)
}

// sayFallback prints a warning if "auto" fell back to a driver without a kernel
// of its own.
func (p *program) sayFallback(sys *app.System) {
	if line := sys.Fallback(); line != "" {
		p.Say("%s %s", p.Painter(p.Err)(console.Yellow)("warning:"), line)
	}
}

// looks is for commands that make no sandboxes, and may act on sandboxes of any
// driver.
func looks(o *app.Options) { o.Looks = true }

// open opens the configured system. adjust, if not nil, may change the options.
func (p *program) open(ctx context.Context, adjust func(*app.Options)) (*app.System, error) {
	c, err := p.load()
	if err != nil {
		return nil, err
	}
	opts := p.options(c)
	if adjust != nil {
		adjust(&opts)
	}
	return app.Open(ctx, opts)
}

// with calls f with a system for commands that only look, or ask the process that holds
// a sandbox.
func (p *program) with(ctx context.Context, f func(*app.System) error) (err error) {
	sys, err := p.open(ctx, looks)
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	return f(sys)
}

func (p *program) options(c config.Config) app.Options {
	return app.Options{Config: c, Log: p.logger(c), Version: Version(), Getenv: p.Getenv, TestDrivers: p.testDrivers, TestAuto: p.testAuto}
}

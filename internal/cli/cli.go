// Package cli is the command line: one command per file.
//
// Only cmd/glovebox imports it. Its rules:
//   - data goes to standard output, everything else to standard error;
//   - an error reads "error: cause", then "hint: remedy" if there is a remedy;
//   - with --json, an error is also data: an object with the member "error", a
//     [sandbox.Problem];
//   - glovebox run and glovebox shell exit with the program's own status, or
//     with a status of package console;
//   - colours appear on a terminal only, and never with NO_COLOR;
//   - every command that prints data can print it as JSON, with --json.
//
// Commands contain no logic of sandboxes: that is in the engine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/advice"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Signals returns a context for [Main], which ends at the first SIGINT or
// SIGTERM. The second such signal kills the process at once, and its attached
// sandboxes end with it.
func Signals() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// A closed output pipe is an error to handle, not a reason to die. Catch
	// SIGPIPE instead of ignoring it, because child processes inherit an ignored
	// signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return ctx
}

// Main runs the command line args and returns the exit status. name is the name
// by which the program was called, and args excludes it. When ctx ends, Main
// cancels the command, which still cleans up.
func Main(ctx context.Context, name string, args []string, s Streams) int {
	return run(ctx, expand(name, args, s.Getenv), &program{Streams: s})
}

// Streams are the streams of a command line.
type Streams = console.Streams

// OS returns the streams of this process.
func OS() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Environ: os.Environ}
}

// A program is one invocation of the command line.
type program struct {
	Streams

	// testDrivers are additional drivers for tests.
	testDrivers map[string]app.Maker
	// testAuto are the drivers that "auto" tries in a test.
	testAuto []string

	// warned is set after the warnings of unknown environment variables.
	warned bool

	// Values of the flags that all commands share.
	flags struct {
		config   string
		driver   string
		stateDir string

		requireIsolation string
		logLevel         string
		allowUnenforced  string
		allowNetwork     []string
		networkRate      config.Bytes
		networkTotal     config.Bytes
		secrets          secretFlags
		workspaceTTL     config.Duration
		runners          string
		json             bool
		// adjust applies the command's own flags to the configuration.
		adjust func(*config.Config) error
	}
}

func run(ctx context.Context, args []string, p *program) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	say := p.lookForUpdate(ctx, args)
	cmd, err := root.ExecuteContextC(ctx)
	status := p.finish(cmd, err)
	say()
	return status
}

// brokenPipe reports whether err comes from standard output, whose reader has left.
func brokenPipe(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Path == os.Stdout.Name() && errors.Is(failed.Err, syscall.EPIPE)
}

// finish prints the error of cmd, if any, and returns the exit status.
func (p *program) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	var exit *console.ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return exit.Status
	}
	if brokenPipe(err) {
		return console.StatusFailure // the reader of the output has what it wanted
	}
	if p.flags.json {
		// A reader that has left cannot be told, and the text below is complete.
		_ = p.PrintJSON(map[string]sandbox.Problem{"error": problem(cmd, err)})
	}
	p.Say("%s %s", p.Painter(p.Err)(console.Red)("error:"), advice.Once(err.Error()))
	if hint := sandbox.HintOf(err); hint != "" {
		p.Hint(advice.ForCommands(hint))
	}
	return console.Status(err)
}

// problem describes the error of cmd to programs. It names arguments as flags.
func problem(cmd *cobra.Command, err error) sandbox.Problem {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name, "--"+f.Name) })
	out := sandbox.ProblemOf(err, names)
	out.Message, out.Hint = advice.Once(out.Message), advice.ForCommands(out.Hint)
	if out.Argument != "" {
		out.Argument = "--" + strings.TrimPrefix(out.Argument, "--")
	}
	return out
}

// load returns the configuration from defaults, file, environment and flags.
func (p *program) load() (config.Config, error) {
	c, err := config.Load(p.flags.config, p.Getenv)
	if err != nil {
		return c, err
	}
	p.warnVariables()
	return p.override(c)
}

// warnVariables warns once of environment variables that look like settings, but
// that Glovebox ignores.
func (p *program) warnVariables() {
	if p.warned || p.Environ == nil {
		return
	}
	p.warned = true
	for _, v := range config.UnknownVariables(p.Environ()) {
		line := fmt.Sprintf("the environment variable %s is not known, and has no effect", v.Name)
		if v.Like != "" {
			line += fmt.Sprintf("; did you mean %s?", v.Like)
		}
		p.Say("%s %s", p.Painter(p.Err)(console.Yellow)("warning:"), line)
	}
}

// override returns a configuration with the settings of flags, and checks it.
func (p *program) override(c config.Config) (_ config.Config, err error) {
	if p.flags.driver != "" {
		c.Driver = p.flags.driver
	}
	if p.flags.requireIsolation != "" {
		c.RequireIsolation = p.flags.requireIsolation
	}
	if p.flags.stateDir != "" {
		c.StateDir, err = console.Absolute(p.flags.stateDir)
		if err != nil {
			return c, err
		}
	}
	if p.flags.logLevel != "" {
		if err := c.SetLogLevel(p.flags.logLevel); err != nil {
			return c, console.UsageError("--log-level: %w", err)
		}
	}
	if p.flags.allowUnenforced != "" {
		if err := c.SetAllowUnenforced(p.flags.allowUnenforced); err != nil {
			return c, console.UsageError("--allow-unenforced: %w", err)
		}
	}
	if p.flags.runners != "" {
		c.Languages.Runners = p.flags.runners
	}
	if len(p.flags.allowNetwork) > 0 {
		c.Network.Allow = p.flags.allowNetwork
	}
	for _, s := range p.flags.secrets {
		s.Resolve(p.Getenv)
		c.Secrets = append(c.Secrets, s)
	}
	if p.flags.networkRate != 0 {
		c.Network.Rate = p.flags.networkRate
	}
	if p.flags.networkTotal != 0 {
		c.Network.Total = p.flags.networkTotal
	}
	if p.flags.workspaceTTL != 0 {
		c.Workspace.TTL = p.flags.workspaceTTL
	}
	adjust := p.flags.adjust
	if adjust == nil {
		return c, c.Validate()
	}
	if err := adjust(&c); err != nil {
		return c, err
	}
	// The flags set the profile, and override its settings.
	if err := p.takeOver(&c); err != nil {
		return c, err
	}
	if err := adjust(&c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// takeOver applies the settings of the server that the profile replaces.
func (p *program) takeOver(c *config.Config) error {
	switch c.MCP.Profile {
	case profileCodeRunner, profileE2B:
	default:
		return nil
	}
	getenv, err := config.DotEnv(".", p.Getenv)
	if err != nil {
		return err
	}
	if c.MCP.Profile == profileE2B {
		if p.flags.driver != "" {
			return nil
		}
		return c.InterpreterType(getenv, app.InterpreterTypes())
	}
	return c.CodeRunner(getenv)
}

// logger returns a logger that writes to standard error.
func (p *program) logger(c config.Config) *slog.Logger {
	return slog.New(slog.NewTextHandler(p.Err, &slog.HandlerOptions{Level: c.LogLevel}))
}

package run

import (
	"cmp"
	"maps"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Program is the program that a request asks to run, with every way of
// starting it that may work.
type Program struct {
	Runner  *interpreter.Runner // of code; nil for a command
	Argv    []string            // of a command
	context bool                // the code runs in a context
	shell   []string            // the same command in a shell, if Argv has its words
	env     map[string]string   // variables that the runner adds
}

// runCommands runs each of its parameters as a shell command and stops at the
// first failure. The commands are parameters, not part of the script, so they
// need no quoting.
const runCommands = `for command do /bin/sh -c "$command" || exit "$?"; done`

// NewProgram returns the program of a request, which was checked. The error is of
// kind [sandbox.Invalid] for an unknown language, and [sandbox.Unsupported] for a
// context of a language that has none.
func NewProgram(req sandbox.RunRequest, runners interpreter.Table) (Program, error) {
	switch {
	case len(req.Argv) > 0:
		return Program{Argv: req.Argv}, nil
	case len(req.Commands) == 1:
		shell := []string{"/bin/sh", "-c", req.Commands[0]}
		if words := request.PlainWords(req.Commands[0]); words != nil {
			return Program{Argv: words, shell: shell}, nil
		}
		return Program{Argv: shell}, nil
	case len(req.Commands) > 1:
		return Program{Argv: append([]string{"/bin/sh", "-c", runCommands, "sh"}, req.Commands...)}, nil
	}
	runner, err := runners.Find(cmp.Or(req.Language, language.Default))
	if err != nil {
		return Program{}, err
	}
	dir := req.Dir
	if dir == "" {
		dir = sandbox.WorkDir
	}
	if runner.Kernel == "" && req.Context != "" && (req.Context != sandbox.DefaultContext || req.Restart) {
		return Program{}, NoContexts(runner)
	}
	return Program{Runner: &runner, context: runner.Kernel != "" && req.Context != "", env: runner.Environ(dir)}, nil
}

// NoContexts is the error for a context of a language that has none.
func NoContexts(r interpreter.Runner) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "context: programs of %s have no contexts", r.Language),
		"leave out context: each program then runs by itself, and files are what it leaves")
}

// noNetworkEnv makes programs in a sandbox without a network give up at once:
// retries and waiting would be in vain.
var noNetworkEnv = map[string]string{
	"PIP_RETRIES":              "0",
	"UV_HTTP_RETRIES":          "0",
	"npm_config_fetch_retries": "0",
}

// Environ returns the environment of a program, in a sandbox with that network
// policy and that environment. The request's variables override the others. The
// error is of kind [sandbox.Invalid] if the texts of the program are too long.
func (p Program) Environ(req sandbox.RunRequest, network sandbox.Network, env map[string]string) (map[string]string, error) {
	all := interpreter.PackageEnv()
	if network == sandbox.NetworkNone {
		maps.Copy(all, noNetworkEnv)
	}
	maps.Copy(all, p.env)
	maps.Copy(all, env)
	if !p.context { // a context has its own environment, and openContext adds req.Env for this run
		maps.Copy(all, req.Env)
	}
	if request.TextSize(p.Argv, all)+request.TextSize(req.Args, nil) > request.MaxTexts {
		return nil, request.TooMuchText()
	}
	return all, nil
}

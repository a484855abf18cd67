// Package interpreter holds the runners. A runner says how the files of a
// language are named and run, and what to install if the language is missing.
//
// Runners are data. The engine picks a [Variant] that works in a sandbox, writes
// the program's file, and starts the variant's argv as a process of the guest.
// The engine and the guest speak by package guestapi. Values of this package are
// plain data, belong to the caller, and hold no resources.
//
// The caller's data (code, arguments, paths) is never part of a shell script.
// Some variants need a shell, to compile and then run. Their script is a
// constant of this package, and all data is in its positional parameters.
package interpreter

import (
	"context"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Runner is a language that a sandbox can run. An operator can define one in
// YAML with these keys; see [Table.Override].
type Runner struct {
	// Language is the name of the language. Aliases are its other names.
	Language string   `yaml:"language"`
	Aliases  []string `yaml:"aliases"`
	// Extension is the extension of the language's files, without the dot.
	Extension string `yaml:"extension"`
	// Env is added to the environment. The caller's variables take precedence.
	Env map[string]string `yaml:"env"`
	// Variants are the ways to run a file, in order of preference.
	Variants []Variant `yaml:"variants"`
	// Kernel names the guest's kernel for contexts; it is empty without one.
	// Prepare names modules that every context imports at its start. Warm names
	// modules that a sandbox in the pool imports before a caller needs it.
	Kernel  string   `yaml:"kernel"`
	Prepare []string `yaml:"prepare"`
	Warm    []string `yaml:"warm"`
	// Version is the argument with which the first program of a variant prints
	// its version; --version if empty.
	Version string `yaml:"version"`
	// Installer names the installer for packages of the language; see
	// [Installers].
	Installer string `yaml:"installer"`
	// Package is the Debian package to install if the language is missing. Image
	// is an image that has the language.
	Package string `yaml:"package"`
	Image   string `yaml:"image"`
}

// A Variant is one way to run a file.
type Variant struct {
	// Command is the program and its arguments, with places that [Variant.Argv]
	// fills in.
	Command []string `yaml:"command"`
	// Detect names programs that must be on the sandbox's PATH. Without it, the
	// variant works if the start of Command[0] finds the program.
	Detect []string `yaml:"detect"`
	// Probe, if not empty, is an argv that must exit with code 0.
	Probe []string `yaml:"probe"`
}

// Program returns the program whose presence and version stand for the variant.
func (v Variant) Program() string {
	if len(v.Detect) > 0 {
		return v.Detect[0]
	}
	return v.Command[0]
}

// FileName returns the name of a program's file in its directory.
func (r Runner) FileName() string { return "main." + r.Extension }

// Environ returns the variables that r adds to the environment of a run in cwd.
func (r Runner) Environ(cwd string) map[string]string {
	env := make(map[string]string, len(r.Env))
	for name, value := range r.Env {
		env[name] = strings.ReplaceAll(value, language.PlaceCwd, cwd)
	}
	return env
}

// Missing returns the error for a sandbox of the given image in which no variant
// works. It is of kind Unsupported, and its hint says how to get the language.
func (r Runner) Missing(image string) error {
	err := sandbox.Errorf(sandbox.Unsupported, "language: %s is not installed in this sandbox", r.Language)
	if image == sandbox.ImageHost {
		return sandbox.WithHint(err, "install it on this machine (Debian and Ubuntu: apt-get install %s); new sandboxes then have it", r.Package)
	}
	return sandbox.WithHint(err, "use an image that has it, such as %s", r.Image)
}

// Argv returns the argv that runs file, in the directory dir, with args.
func (v Variant) Argv(dir, file string, args []string) []string {
	argv := make([]string, 0, len(v.Command)+len(args))
	for _, s := range v.Command {
		switch s {
		case language.PlaceFile:
			s = dir + "/" + file
		case language.PlaceDir:
			s = dir
		}
		argv = append(argv, s)
	}
	return append(argv, args...)
}

// An ExecFunc runs argv in a sandbox and returns its exit code. If the program
// does not exist, the error is of kind NotFound.
type ExecFunc func(ctx context.Context, argv []string) (int, error)

// findPrograms exits with 0 if all its parameters are programs on the PATH.
const findPrograms = `for name do command -v -- "$name" >/dev/null 2>&1 || exit 1; done`

// Works reports whether v's Detect and Probe succeed in the sandbox, in which
// exec runs programs. Without either it returns true: only a start shows whether
// v works.
func (v Variant) Works(ctx context.Context, exec ExecFunc) (bool, error) {
	var checks [][]string
	if len(v.Detect) > 0 {
		checks = append(checks, append([]string{"/bin/sh", "-c", findPrograms, "sh"}, v.Detect...))
	}
	if len(v.Probe) > 0 {
		checks = append(checks, v.Probe)
	}
	for _, argv := range checks {
		code, err := exec(ctx, argv)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return false, nil
		}
		if err != nil || code != 0 {
			return false, err
		}
	}
	return true, nil
}

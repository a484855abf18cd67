// Package interpreter holds the runners: for each language, how a file of it
// is named and started, and what to install where it is missing.
//
// Runners are data. The engine picks a [Variant] that works in a sandbox,
// writes the program's file and starts the variant's argv as the guest's
// process; package guestapi is how the two speak. Values here are plain data,
// owned by the caller, and hold no resource.
//
// What a caller sends (code, arguments, paths) is never part of a shell's
// script: where a variant needs a shell, to compile and then run, its script
// is a constant of this package, and all else is its positional parameters.
package interpreter

import (
	"context"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Runner is a language that a sandbox can run. Operators write them as YAML,
// with these keys; see [Table.Override].
type Runner struct {
	// Language is its name, Aliases are others that callers use.
	Language string   `yaml:"language"`
	Aliases  []string `yaml:"aliases"`
	// Extension is that of its files, without the dot.
	Extension string `yaml:"extension"`
	// Env is added to the environment, below what the caller set.
	Env map[string]string `yaml:"env"`
	// Variants are the ways to run it, the preferred first.
	Variants []Variant `yaml:"variants"`
	// Kernel names the guest's kernel for contexts, if there is one. Every
	// context imports the modules of Prepare when it starts, and that of a
	// sandbox which is kept ready those of Warm, before anybody asks for it.
	Kernel  string   `yaml:"kernel"`
	Prepare []string `yaml:"prepare"`
	Warm    []string `yaml:"warm"`
	// Version is the argument that makes the first program of a variant tell
	// its version; --version if empty.
	Version string `yaml:"version"`
	// Installer installs packages of the language; see [Installers].
	Installer string `yaml:"installer"`
	// Package is what to install on a Debian machine that lacks it, Image one
	// that has it.
	Package string `yaml:"package"`
	Image   string `yaml:"image"`
}

// A Variant is one way to run a file.
type Variant struct {
	// Command is the program and its arguments; [Variant.Argv] fills it in.
	Command []string `yaml:"command"`
	// Detect names programs that must be on the sandbox's PATH. Without it,
	// Command[0] is tried, and the variant works if it is found.
	Detect []string `yaml:"detect"`
	// Probe, if there is one, is an argv that must exit with 0.
	Probe []string `yaml:"probe"`
}

// Program is what tells whether the variant is there, and in which version.
func (v Variant) Program() string {
	if len(v.Detect) > 0 {
		return v.Detect[0]
	}
	return v.Command[0]
}

// Places in a Command or an Env that are filled in.
const (
	placeFile = "{file}" // the program's file
	placeDir  = "{dir}"  // the directory that has it, private to the run
	placeCwd  = "{cwd}"  // the run's working directory
)

// FileName is the name of a program's file in its directory.
func (r Runner) FileName() string { return "main." + r.Extension }

// Environ returns what r adds to the environment of a run in cwd.
func (r Runner) Environ(cwd string) map[string]string {
	env := make(map[string]string, len(r.Env))
	for name, value := range r.Env {
		env[name] = strings.ReplaceAll(value, placeCwd, cwd)
	}
	return env
}

// Missing is the error for a sandbox of the given image in which no variant
// works. It is of kind Unsupported and its hint says what to do.
func (r Runner) Missing(image string) error {
	err := sandbox.Errorf(sandbox.Unsupported, "language: %s is not installed in this sandbox", r.Language)
	if image == sandbox.ImageHost {
		return sandbox.WithHint(err, "install it on this machine (Debian and Ubuntu: apt-get install %s); new sandboxes then have it", r.Package)
	}
	return sandbox.WithHint(err, "use an image that has it, such as %s", r.Image)
}

// Argv returns the argv that runs file, which is in dir, with args.
func (v Variant) Argv(dir, file string, args []string) []string {
	argv := make([]string, 0, len(v.Command)+len(args))
	for _, s := range v.Command {
		switch s {
		case placeFile:
			s = dir + "/" + file
		case placeDir:
			s = dir
		}
		argv = append(argv, s)
	}
	return append(argv, args...)
}

// An ExecFunc runs argv in a sandbox and returns its exit code. A program that
// is not there gives an error of kind NotFound.
type ExecFunc func(ctx context.Context, argv []string) (int, error)

// findPrograms exits with 0 if all its parameters are programs on the PATH.
const findPrograms = `for name do command -v -- "$name" >/dev/null 2>&1 || exit 1; done`

// Works reports whether v's Detect and Probe say that it works, asking the
// sandbox by exec. With neither it is true: starting it will tell.
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

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// installTimeout is the timeout of an installation whose caller named none.
const installTimeout = 5 * time.Minute

// Install begins a run that installs packages, and returns as Start does. The
// error is of kind [sandbox.Unsupported] if the sandbox's network does not
// reach the package index; its hint says what to allow. [interpreter.Installer]
// describes the last lines of the run's output.
func (e *Engine) Install(ctx context.Context, p sandbox.Principal, req sandbox.PackagesRequest) (sandbox.Run, error) {
	const op = "install packages"
	if err := request.CheckPrincipal(p); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	installer, err := e.installer(req.Language)
	if err == nil {
		err = interpreter.CheckPackages(req.Packages)
	}
	if err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	image, network := req.New.Image, req.New.Network
	if network == "" {
		network = e.opts.Network
	}
	if req.SandboxID != "" {
		s, err := e.Get(ctx, p, req.SandboxID)
		if err != nil {
			return sandbox.Run{}, sandbox.Wrap(err, op, "")
		}
		image, network = s.Image, s.Network
	}
	if image == "" {
		image = sandbox.ImageHost
	}
	index := e.opts.Indexes[installer.Name]
	if err := e.reaches(installer, index, req.Packages, network); err != nil {
		return sandbox.Run{}, sandbox.Wrap(err, op, "")
	}
	if req.Timeout == 0 {
		req.Timeout = min(installTimeout, e.opts.MaxRunTimeout)
	}
	for _, argv := range installer.Argvs(req.Packages) {
		r, err := e.Start(ctx, p, sandbox.RunRequest{
			SandboxID: req.SandboxID,
			New:       req.New,
			Argv:      argv,
			Env:       installer.Environ(index),
			Timeout:   req.Timeout,
		})
		if !errors.Is(err, run.ErrNoProgram) {
			return r, err
		}
	}
	return sandbox.Run{}, sandbox.Wrap(e.missing(image, installer.Missing), op, "")
}

// installer returns the installer with that name, or else the installer of that
// language.
func (e *Engine) installer(name string) (interpreter.Installer, error) {
	name = cmp.Or(name, language.Default)
	if i, err := interpreter.FindInstaller(name); err == nil {
		return i, nil
	}
	runner, err := e.opts.Runners.Find(name)
	if err != nil {
		return interpreter.Installer{}, err
	}
	if runner.Installer == "" {
		return interpreter.Installer{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "language: packages of %s are not installed by this tool", runner.Language),
			"use run_command with the language's own package manager, or language apt for packages of Debian")
	}
	return interpreter.FindInstaller(runner.Installer)
}

// reaches returns an error unless the network lets the installer reach its
// package index.
func (e *Engine) reaches(i interpreter.Installer, index string, packages []string, network sandbox.Network) error {
	needs, err := i.Network(index, packages)
	if err != nil {
		return err
	}
	canonical, err := sandbox.ParseNetwork(string(network))
	if err != nil {
		return nil // the creation of the sandbox reports the error
	}
	if needs == sandbox.NetworkNone || needs.Within(canonical) == nil {
		return nil
	}
	how := fmt.Sprintf("make a new sandbox with network %q", needs)
	if needs.Within(e.opts.MaxNetwork) != nil {
		how = fmt.Sprintf("this server lets no sandbox reach it: ask the operator to start it with --allow-network %s, then make a new sandbox with that network", needs)
	}
	return sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "network: %s must reach %s, and the sandbox's network is %s", i.Name, needs, canonical),
		"%s; what is in the sandbox already, list_languages tells", how)
}

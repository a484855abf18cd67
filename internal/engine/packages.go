package engine

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/languages"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
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
	installer, err := languages.Installer(req.Language, e.opts.Runners)
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
	if err := languages.Reaches(installer, index, req.Packages, network, e.opts.MaxNetwork); err != nil {
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
		if !errors.Is(err, sandbox.ErrNoProgram) {
			return r, err
		}
	}
	return sandbox.Run{}, sandbox.Wrap(e.missing(image, installer.Missing), op, "")
}

// Languages returns, for each language, whether a sandbox has it, its version
// and its notable packages. Without a sandboxID it creates a sandbox as req
// says. It returns the sandbox's identifier.
func (e *Engine) Languages(ctx context.Context, p sandbox.Principal, sandboxID string, req sandbox.CreateRequest) ([]sandbox.Language, string, error) {
	const op = "list languages"
	var b *liveSandbox
	var err error
	if sandboxID == "" {
		b, err = e.create(ctx, p, req)
	} else {
		b, err = e.usable(ctx, p, sandboxID)
	}
	if err != nil {
		return nil, "", sandbox.Wrap(err, op, "")
	}
	release, err := b.use(ctx)
	if err != nil {
		return nil, "", sandbox.Wrap(err, op, "")
	}
	defer release()
	list, err := languages.List(ctx, b.guest, e.opts.Runners, func(from func(string) error) error { return e.missing(b.rec.Image, from) })
	if err != nil {
		return nil, "", sandbox.Wrap(b.Explain(ctx, err), op, b.id)
	}
	return languages.WithImages(list, b.rec.Image, e.RunnerImages(ctx, b.rec.Principal)), b.id, nil
}

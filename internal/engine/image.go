package engine

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Labels of images that are made to run programs of a language.
const (
	labelRunner   = "sandbox.runner"   // "true"
	labelLanguage = "sandbox.language" // which
)

// defaultLanguage is that of code whose caller named none.
const defaultLanguage = "python"

// defaultImage returns the image of a sandbox whose creator named none, for
// programs of a language: the machine's own system where the driver has that,
// else one that is here and labelled for the language, else the language's own.
func (e *Engine) defaultImage(ctx context.Context, language string) (string, error) {
	if e.drv.Info().Features.Host {
		return sandbox.ImageHost, nil
	}
	if language == "" {
		language = defaultLanguage
	}
	runner, err := e.opts.Runners.Find(language)
	if err != nil {
		return "", err
	}
	if i, ok := e.runnerImage(ctx, runner.Language); ok {
		return i.Name, nil
	}
	return runner.Image, nil
}

// runnerImage returns the image that is labelled for a language, if there is
// one here: of several, one that was made here.
func (e *Engine) runnerImage(ctx context.Context, language string) (sandbox.Image, bool) {
	k, err := driver.Images(e.drv)
	if err != nil {
		return sandbox.Image{}, false
	}
	list, err := k.Images(ctx)
	if err != nil {
		e.log.Warn("look for images of a language", "language", language, "error", err)
		return sandbox.Image{}, false
	}
	list = slices.DeleteFunc(list, func(i sandbox.Image) bool {
		return i.Name == "" || i.Config.Labels[labelRunner] != "true" || i.Config.Labels[labelLanguage] != language
	})
	if len(list) == 0 {
		return sandbox.Image{}, false
	}
	if n := slices.IndexFunc(list, func(i sandbox.Image) bool { return i.Local }); n >= 0 {
		return list[n], true
	}
	return list[0], true
}

// entryProgram makes of code in a language that only an image knows what that
// image's entry point makes of it, which reads the program as its input.
func (e *Engine) entryProgram(ctx context.Context, req *sandbox.RunRequest) (program, bool) {
	if req.Code == "" || req.SandboxID != "" || req.New.Image != "" || req.Stdin != nil || req.Language == "" {
		return program{}, false
	}
	found, ok := e.runnerImage(ctx, req.Language)
	if !ok {
		return program{}, false
	}
	k, err := driver.Images(e.drv)
	if err != nil {
		return program{}, false
	}
	i, err := k.Image(ctx, found.Name) // a list says less
	argv := slices.Concat(i.Config.Entrypoint, i.Config.Cmd)
	if err != nil || len(argv) == 0 {
		return program{}, false
	}
	req.New.Image, req.Stdin, req.Code, req.KeepStdin = i.Name, []byte(req.Code), "", false
	return program{argv: append(argv, req.Args...)}, true
}

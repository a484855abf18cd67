package engine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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
// one here: of several one that has no other language, then one that was made
// here.
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
	return bestImage(list, language)
}

// bestImage returns the image of a list that is the one for a language, if there
// is one.
func bestImage(list []sandbox.Image, language string) (sandbox.Image, bool) {
	rank := func(i sandbox.Image) int { // the lower, the better
		rank := min(len(interpreter.ReadLabels(i.Config.Labels).Languages), 2) << 1
		if !i.Local {
			rank++
		}
		return rank
	}
	list = slices.DeleteFunc(slices.Clone(list), func(i sandbox.Image) bool {
		return i.Name == "" || !interpreter.ReadLabels(i.Config.Labels).Has(language)
	})
	if len(list) == 0 {
		return sandbox.Image{}, false
	}
	return slices.MinFunc(list, func(a, b sandbox.Image) int { return rank(a) - rank(b) }), true
}

// entryProgram makes of code in a language that only an image knows what that
// image says: the command of its labels, or its entry point, which reads the
// program as its input. ok is false if there is no such image.
func (e *Engine) entryProgram(ctx context.Context, p sandbox.Principal, req *sandbox.RunRequest) (_ program, ok bool, err error) {
	k, err := driver.Images(e.drv)
	if err != nil || req.Code == "" || req.Language == "" || req.Context != "" && (req.Context != sandbox.DefaultContext || req.Restart) {
		return program{}, false, nil
	}
	language := strings.ToLower(req.Language)
	name := req.New.Image
	if req.SandboxID != "" {
		b, err := e.usable(ctx, p, req.SandboxID)
		if err != nil {
			return program{}, false, err
		}
		name = b.rec.Image
	} else if name != "" {
		if _, err := e.prepareImage(ctx, name, req.New.Progress); err != nil {
			return program{}, false, err
		}
	} else if found, ok := e.runnerImage(ctx, language); ok {
		name = found.Name
	}
	if name == "" || name == sandbox.ImageHost {
		return program{}, false, nil
	}
	i, err := k.Image(ctx, name) // a list says less
	if err != nil {
		return program{}, false, nil
	}
	l := interpreter.ReadLabels(i.Config.Labels)
	if !l.Has(language) {
		return program{}, false, nil
	}
	prog := program{argv: slices.Concat(i.Config.Entrypoint, i.Config.Cmd)}
	if len(l.Entry) > 0 {
		prog.argv = l.Entry
	}
	if r, ok := l.Own(); ok {
		prog = program{runner: &r}
	} else if len(prog.argv) == 0 || req.Stdin != nil {
		return program{}, false, nil
	} else {
		prog.argv = slices.Concat(prog.argv, req.Args)
		req.Stdin, req.Code, req.KeepStdin = []byte(req.Code), "", false
	}
	if req.SandboxID == "" {
		req.New.Image = name
	}
	return prog, true, nil
}

// LanguageByExtension returns the language of an image here whose files end so,
// empty if there is none.
func (e *Engine) LanguageByExtension(ctx context.Context, extension string) string {
	if extension == "" {
		return ""
	}
	for _, language := range slices.Sorted(maps.Keys(e.RunnerImages(ctx))) {
		i, ok := e.runnerImage(ctx, language)
		if ok && strings.EqualFold(interpreter.ReadLabels(i.Config.Labels).Extension, extension) {
			return language
		}
	}
	return ""
}

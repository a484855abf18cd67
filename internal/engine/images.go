package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// entryProgram returns the program for code in a language that only an image
// supports. The program is the command of the image's labels, or its entry
// point, which reads the code from standard input. ok is false if there is no
// such image.
func (e *Engine) entryProgram(ctx context.Context, p sandbox.Principal, req *sandbox.RunRequest) (_ run.Program, ok bool, err error) {
	k, err := driver.Images(e.drv)
	if err != nil || req.Code == "" || req.Language == "" || req.Context != "" && (req.Context != sandbox.DefaultContext || req.Restart) {
		return run.Program{}, false, nil
	}
	language := strings.ToLower(req.Language)
	name := req.New.Image
	if req.SandboxID != "" {
		b, err := e.usable(ctx, p, req.SandboxID)
		if err != nil {
			return run.Program{}, false, err
		}
		name = cmp.Or(b.image, b.rec.Image) // the exact image of the sandbox, where it is known
	} else if name != "" {
		if name, err = e.images.Prepare(ctx, p, name, req.New.Progress); err != nil {
			return run.Program{}, false, err
		}
	} else if found, ok := e.images.Runner(ctx, p, language); ok {
		name, req.New.Image = found.ID, found.Name
	}
	if name == "" || name == sandbox.ImageHost {
		return run.Program{}, false, nil
	}
	i, err := k.Image(ctx, name) // a list has fewer details
	if err != nil {
		return run.Program{}, false, nil
	}
	l := interpreter.ReadLabels(i.Config.Labels)
	if !l.Has(language) {
		return run.Program{}, false, nil
	}
	prog := run.Program{Argv: slices.Concat(i.Config.Entrypoint, i.Config.Cmd)}
	if len(l.Entry) > 0 {
		prog.Argv = l.Entry
	}
	if r, ok := l.Own(); ok {
		prog = run.Program{Runner: &r}
	} else if len(prog.Argv) == 0 || req.Stdin != nil {
		return run.Program{}, false, nil
	} else {
		prog.Argv = slices.Concat(prog.Argv, req.Args)
		req.Stdin, req.Code, req.KeepStdin = []byte(req.Code), "", false
	}
	return prog, true, nil
}

// RunnerImages returns the names of local images that are labelled as runners
// and may run p's code, by language. For [store.OperatorImage] it returns the
// images that may run the code of every principal.
func (e *Engine) RunnerImages(ctx context.Context, p sandbox.Principal) map[string]string {
	return e.images.Runners(ctx, p)
}

// LanguageByExtension returns the language with that file extension, from the
// local images that may run p's code. It returns "" if there is none.
func (e *Engine) LanguageByExtension(ctx context.Context, p sandbox.Principal, extension string) string {
	return e.images.LanguageByExtension(ctx, p, extension)
}

// FetchImage returns the image that a principal's reference names, and pulls it
// for the principal if it is not here.
func (e *Engine) FetchImage(ctx context.Context, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	return e.images.Fetch(ctx, p, ref, progress)
}

// HasImage reports whether the image that a principal's reference names is here,
// and may run its code. It asks no registry.
func (e *Engine) HasImage(ctx context.Context, p sandbox.Principal, ref string) (bool, error) {
	has, err := e.images.Has(ctx, p, ref)
	return has, sandbox.Wrap(err, "look for image", "")
}

// PullImage pulls an image for the operator, even if an image of that name is
// here. All principals may use it then.
func (e *Engine) PullImage(ctx context.Context, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	return e.images.Pull(ctx, ref, progress)
}

// AdoptImages makes local images the operator's, so that all principals may use
// them.
func (e *Engine) AdoptImages(ctx context.Context, images ...sandbox.Image) error {
	return e.images.Adopt(ctx, images...)
}

// ForgetImages removes the records of images that are no longer here.
func (e *Engine) ForgetImages(ctx context.Context) error { return e.images.Forget(ctx) }

package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// defaultLanguage is the language of code whose caller named none.
const defaultLanguage = "python"

// defaultImage returns the image of a sandbox whose creator named none, for
// programs of a language. It is the host's own system where the driver has
// that. Otherwise it is a local image labelled for the language, and otherwise
// the default image of the language. The principal is [store.OperatorImage]
// where it is not known yet.
func (e *Engine) defaultImage(ctx context.Context, p sandbox.Principal, language string) (string, error) {
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
	if i, ok := e.runnerImage(ctx, p, runner.Language); ok {
		return i.Name, nil
	}
	return runner.Image, nil
}

// An ownedImage is an image with its owner as one principal sees it.
type ownedImage struct {
	sandbox.Image
	owner imageOwner
}

// imagesOf returns the local images that have a name, with their owners as
// principal p sees them.
func (e *Engine) imagesOf(ctx context.Context, p sandbox.Principal) ([]ownedImage, error) {
	k, err := driver.Images(e.drv)
	if err != nil {
		return nil, nil // this driver keeps no images
	}
	all, err := k.Images(ctx)
	if err != nil {
		return nil, err
	}
	book, err := e.imageBook(ctx, k)
	if err != nil {
		return nil, err
	}
	var list []ownedImage
	for _, i := range all {
		if i.Name != "" {
			list = append(list, ownedImage{i, book.owner(i, p)})
		}
	}
	return list, nil
}

// runnerImage returns the local image that is labelled for a language and may
// run p's code, if there is one.
func (e *Engine) runnerImage(ctx context.Context, p sandbox.Principal, language string) (sandbox.Image, bool) {
	list, err := e.imagesOf(ctx, p)
	if err != nil {
		e.log.Warn("look for images of a language", "language", language, "error", err)
		return sandbox.Image{}, false
	}
	return bestImage(list, language)
}

// bestImage returns the image of a list that is best for a language, if any is
// labelled for it. The operator's images come before the principal's own. Next
// come images with no other language.
func bestImage(list []ownedImage, language string) (sandbox.Image, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(i ownedImage) bool {
		return i.owner > ownImage || !interpreter.ReadLabels(i.Config.Labels).Has(language)
	})
	if len(list) == 0 {
		return sandbox.Image{}, false
	}
	return slices.MinFunc(list, func(a, b ownedImage) int {
		languages := func(i ownedImage) int { return min(len(interpreter.ReadLabels(i.Config.Labels).Languages), 2) }
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(languages(a), languages(b)), cmp.Compare(a.Name, b.Name))
	}).Image, true
}

// RunnerImages returns the names of local images that are labelled as runners
// and may run p's code, by language. For [store.OperatorImage] it returns the
// images that may run the code of every principal.
func (e *Engine) RunnerImages(ctx context.Context, p sandbox.Principal) map[string]string {
	images := map[string]string{}
	list, err := e.imagesOf(ctx, p)
	if err != nil {
		e.log.Warn("look for images of languages", "error", err)
		return images
	}
	for _, i := range list {
		for _, language := range interpreter.ReadLabels(i.Config.Labels).Languages {
			if images[language] != "" {
				continue
			}
			if found, ok := bestImage(list, language); ok {
				images[language] = found.Name
			}
		}
	}
	return images
}

// withAdoption adds a hint to the error for a language that no image may run.
// The hint says how the operator allows a local image whose owner is unknown.
func (e *Engine) withAdoption(ctx context.Context, p sandbox.Principal, language string, err error) error {
	if !e.isOperator(p) {
		return err // only the operator may know which images there are
	}
	list, listErr := e.imagesOf(ctx, p)
	if listErr != nil {
		return err
	}
	for _, i := range list {
		if i.owner > ownImage && interpreter.ReadLabels(i.Config.Labels).Has(strings.ToLower(language)) {
			return sandbox.WithHint(err, "the image %s has it, and is not known to be yours: glovebox images adopt %s", i.Name, i.Name)
		}
	}
	return err
}

// entryProgram returns the program for code in a language that only an image
// supports. The program is the command of the image's labels, or its entry
// point, which reads the code from standard input. ok is false if there is no
// such image.
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
		name = cmp.Or(b.image, b.rec.Image) // the exact image of the box, where it is known
	} else if name != "" {
		if name, err = e.prepareImage(ctx, p, name, req.New.Progress); err != nil {
			return program{}, false, err
		}
	} else if found, ok := e.runnerImage(ctx, p, language); ok {
		name, req.New.Image = found.ID, found.Name
	}
	if name == "" || name == sandbox.ImageHost {
		return program{}, false, nil
	}
	i, err := k.Image(ctx, name) // a list has fewer details
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
	return prog, true, nil
}

// LanguageByExtension returns the language with that file extension, from the
// local images that may run p's code. It returns "" if there is none.
func (e *Engine) LanguageByExtension(ctx context.Context, p sandbox.Principal, extension string) string {
	if extension == "" {
		return ""
	}
	for _, language := range slices.Sorted(maps.Keys(e.RunnerImages(ctx, p))) {
		i, ok := e.runnerImage(ctx, p, language)
		if ok && strings.EqualFold(interpreter.ReadLabels(i.Config.Labels).Extension, extension) {
			return language
		}
	}
	return ""
}

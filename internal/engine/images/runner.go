package images

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

// Default returns the image of a sandbox whose creator named none, for
// programs of a language. It is the host's own system where the driver has
// that. Otherwise it is a local image labelled for the language, and otherwise
// the default image of the language. The principal is [store.OperatorImage]
// where it is not known yet.
func (s *Images) Default(ctx context.Context, p sandbox.Principal, language string) (string, error) {
	if s.features.Host {
		return sandbox.ImageHost, nil
	}
	if language == "" {
		language = s.opts.Language
	}
	runner, err := s.opts.Runners.Find(language)
	if err != nil {
		return "", err
	}
	if i, ok := s.Runner(ctx, p, runner.Language); ok {
		return i.Name, nil
	}
	return runner.Image, nil
}

// An ownedImage is an image with its owner as one principal sees it.
type ownedImage struct {
	sandbox.Image
	owner imageOwner
}

// of returns the local images that have a name, with their owners as
// principal p sees them.
func (s *Images) of(ctx context.Context, p sandbox.Principal) ([]ownedImage, error) {
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return nil, nil // this driver keeps no images
	}
	all, err := k.Images(ctx)
	if err != nil {
		return nil, err
	}
	known, err := s.book(ctx, k)
	if err != nil {
		return nil, err
	}
	var list []ownedImage
	for _, i := range all {
		if i.Name != "" {
			list = append(list, ownedImage{i, known.owner(i, p)})
		}
	}
	return list, nil
}

// Runner returns the local image that is labelled for a language and may
// run p's code, if there is one.
func (s *Images) Runner(ctx context.Context, p sandbox.Principal, language string) (sandbox.Image, bool) {
	list, err := s.of(ctx, p)
	if err != nil {
		s.opts.Log.Warn("look for images of a language", "language", language, "error", err)
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

// Runners returns the names of local images that are labelled as runners
// and may run p's code, by language. For [store.OperatorImage] it returns the
// images that may run the code of every principal.
func (s *Images) Runners(ctx context.Context, p sandbox.Principal) map[string]string {
	images := map[string]string{}
	list, err := s.of(ctx, p)
	if err != nil {
		s.opts.Log.Warn("look for images of languages", "error", err)
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

// WithAdoption adds a hint to the error for a language that no image may run.
// The hint says how the operator allows a local image whose owner is unknown.
func (s *Images) WithAdoption(ctx context.Context, p sandbox.Principal, language string, err error) error {
	if !s.isOperator(p) {
		return err // only the operator may know which images there are
	}
	list, listErr := s.of(ctx, p)
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

// LanguageByExtension returns the language with that file extension, from the
// local images that may run p's code. It returns "" if there is none.
func (s *Images) LanguageByExtension(ctx context.Context, p sandbox.Principal, extension string) string {
	if extension == "" {
		return ""
	}
	for _, language := range slices.Sorted(maps.Keys(s.Runners(ctx, p))) {
		i, ok := s.Runner(ctx, p, language)
		if ok && strings.EqualFold(interpreter.ReadLabels(i.Config.Labels).Extension, extension) {
			return language
		}
	}
	return ""
}

// Prepare has the driver fetch an image that is missing, on behalf of a
// principal. It returns the image to ask the driver for: its identifier,
// because the name may stand for another image a moment later. A fetch may take
// much longer than the start. If it is interrupted, the next attempt continues
// it. It runs before a place is taken, so that a slow registry blocks no place.
func (s *Images) Prepare(ctx context.Context, p sandbox.Principal, image string, progress func(sandbox.ImageProgress)) (string, error) {
	k, err := driver.Images(s.opts.Driver)
	if err != nil || image == sandbox.ImageHost || image == sandbox.ImageScratch {
		return image, nil // the driver itself reports what it cannot do
	}
	i, err := s.fetch(ctx, k, p, image, progress)
	return i.ID, err
}

package app

import (
	"context"
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/coderunner"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// languages returns the languages of sandboxes whose creator names no image, and
// the image of each. First come the languages of images that are labelled as
// runners, then the languages that Glovebox knows. It makes no sandbox to find
// out, so the result is a guess.
//
// All clients of a server get the same result. Only a stdio server knows its
// principal here; an HTTP server uses the operator's images.
func (s *System) languages(ctx context.Context) []coderunner.Language {
	p := sandbox.Local
	if s.opts.Detached {
		p = store.OperatorImage
	}
	runners, err := Runners(s.opts.Config.Languages)
	if err != nil {
		runners = interpreter.Runners() // Open has refused an invalid table
	}
	return languagesOf(s.driver.Info().Features, runners, s.Engine.RunnerImages(ctx, p))
}

// languagesOf is languages for a driver with these features. Only a sandbox
// could show the languages of a remote system. It makes none, so it returns all
// languages.
func languagesOf(f driver.Features, runners interpreter.Table, labelled map[string]string) (languages []coderunner.Language) {
	host := f.Host && !f.Remote
	for _, name := range slices.Sorted(maps.Keys(labelled)) {
		if _, err := runners.Find(name); err == nil && f.Host {
			continue // the host's own comes first
		}
		languages = append(languages, coderunner.Language{Language: name, Image: labelled[name]})
	}
	for _, r := range runners {
		switch {
		case f.Host && f.Remote:
			languages = append(languages, coderunner.Language{Language: r.Language, Image: sandbox.ImageHost})
		case !host && labelled[r.Language] == "":
			languages = append(languages, coderunner.Language{Language: r.Language, Image: r.Image})
		case host && r.Installed():
			languages = append(languages, coderunner.Language{Language: r.Language, Image: sandbox.ImageHost})
		}
	}
	return languages
}

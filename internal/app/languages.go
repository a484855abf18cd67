package app

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/interpreter"
)

// Languages returns the names of the languages that sandboxes can run, where
// what runs them is installed.
func Languages() []string {
	var names []string
	for _, r := range interpreter.Runners() {
		names = append(names, r.Language)
	}
	return names
}

// LanguageOf guesses a program's language from the name of its file.
func LanguageOf(file string) (language string, ok bool) {
	ext := strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
	if ext == "" {
		return "", false
	}
	for _, r := range interpreter.Runners() {
		if r.Extension == ext || r.Language == ext || slices.Contains(r.Aliases, ext) {
			return r.Language, true
		}
	}
	return "", false
}

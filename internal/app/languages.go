package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/coderunner"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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

// languages are those that sandboxes of the default image can run, as far as
// can be told without making one.
func (s *System) languages() []coderunner.Language {
	var languages []coderunner.Language
	for _, r := range interpreter.Runners() {
		if installed(r) {
			languages = append(languages, coderunner.Language{Language: r.Language, Image: sandbox.ImageHost})
		}
	}
	return languages
}

// systemPath is where sandboxes of the image host look for programs.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// installed reports whether this machine has the programs of a runner where
// sandboxes see them.
func installed(r interpreter.Runner) bool {
	here := func(program string) bool {
		if filepath.IsAbs(program) {
			_, err := os.Stat(program)
			return err == nil
		}
		return slices.ContainsFunc(systemPath, func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, program))
			return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		})
	}
	return slices.ContainsFunc(r.Variants, func(v interpreter.Variant) bool {
		programs := v.Detect
		if len(programs) == 0 {
			programs = v.Command[:1]
		}
		return !slices.ContainsFunc(programs, func(p string) bool { return !here(p) })
	})
}

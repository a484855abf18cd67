package interpreter

import (
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/language"
)

// Labels are the labels of an image that is made to run programs.
type Labels struct {
	// Runner is set for an image that is made to run programs, and Languages are
	// its languages. Without glovebox.languages it is a single language.
	Runner    bool     // sandbox.runner=true
	Languages []string // sandbox.language, or words of glovebox.languages
	// Extension is the extension of the language's files. Entry is the command
	// that runs a program. The name of the program's file replaces {file};
	// without {file} the program is the command's input. Both are for languages
	// without a runner.
	Extension string   // glovebox.extension
	Entry     []string // glovebox.entry, words with spaces between
	// Warm names modules of the first language. A sandbox in the pool imports
	// them in advance.
	Warm []string // glovebox.warm-imports, words with spaces between
}

// Bounds on an image's labels.
const (
	maxLabel = 4 << 10
	maxWords = 32
)

// ReadLabels parses an image's labels. It skips malformed labels, because an
// image may come from any source.
func ReadLabels(labels map[string]string) Labels {
	words := func(name string) []string {
		text := labels[name]
		if len(text) > maxLabel {
			return nil
		}
		all := strings.Fields(text)
		return all[:min(len(all), maxWords)]
	}
	l := Labels{
		Runner:    labels["sandbox.runner"] == "true",
		Languages: words("glovebox.languages"),
		Extension: strings.TrimPrefix(labels["glovebox.extension"], "."),
		Entry:     words("glovebox.entry"),
		Warm:      words("glovebox.warm-imports"),
	}
	if len(l.Languages) == 0 {
		l.Languages = []string{labels["sandbox.language"]}
	}
	for i, name := range l.Languages {
		l.Languages[i] = strings.ToLower(name)
	}
	l.Languages = slices.DeleteFunc(l.Languages, func(name string) bool { return !isWord(name) })
	if l.Runner = l.Runner && len(l.Languages) > 0; !l.Runner {
		l.Languages = nil
	}
	if !isWord(l.Extension) {
		l.Extension = ""
	}
	return l
}

// Has reports whether the image is made for programs of a language.
func (l Labels) Has(language string) bool { return slices.Contains(l.Languages, language) }

// Own returns the runner that the labels describe, and whether there is one.
// There is one only if Entry has {file}.
func (l Labels) Own() (Runner, bool) {
	if !l.Runner || !slices.Contains(l.Entry, language.PlaceFile) {
		return Runner{}, false
	}
	name := l.Languages[0]
	ext := l.Extension
	if ext == "" {
		ext = name
	}
	r := Runner{Language: name, Extension: ext, Variants: []Variant{{Command: l.Entry}}}
	return r, r.check() == nil
}

// Kernel returns the kernel of the image's first language, or "" if it has none.
func (l Labels) Kernel(t Table) string {
	if !l.Runner {
		return ""
	}
	r, err := t.Find(l.Languages[0])
	if err != nil {
		return ""
	}
	return r.Kernel
}

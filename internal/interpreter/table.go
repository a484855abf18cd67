package interpreter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Table is the known languages, in the order in which they are listed. It does
// not change once it is in use.
type Table []Runner

// Runners returns the built-in languages.
func Runners() Table {
	var table Table
	for _, l := range language.All() {
		r := Runner{
			Language: l.Name, Aliases: l.Aliases, Extension: l.Extension, Env: l.Env, Version: l.VersionArg,
			Warm: l.Warm, Installer: l.Installer, Package: l.Package, Image: l.Image,
		}
		for _, v := range l.Variants {
			r.Variants = append(r.Variants, Variant(v))
		}
		if l.Context != nil {
			r.Kernel = l.Name
		}
		table = append(table, r)
	}
	return table
}

// Bounds on an operator's runners: the bytes of a file, and the languages.
const (
	maxRunnerFile = 64 << 10
	maxRunners    = 256
)

// unknownKey matches the decoder's error for a key that Runner does not have.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Find returns the runner of that language, by name or alias, in any case. If
// the language is unknown, the error is of kind Invalid.
func (t Table) Find(name string) (Runner, error) {
	name = strings.ToLower(name)
	var names []string
	for _, r := range t {
		if r.Language == name || slices.Contains(r.Aliases, name) {
			return r, nil
		}
		names = append(names, r.Language)
	}
	if len(name) > 40 {
		name = name[:40] + "…"
	}
	return Runner{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "language: %q is not known", name),
		"use one of %s", strings.Join(names, ", "))
}

// OfFile guesses a program's language from the name of its file, or else from the
// interpreter in its first line, as in "#!/usr/bin/env python3". If no language
// matches, it returns the known languages.
func (t Table) OfFile(file, code string) (name string, known []string) {
	ext := strings.ToLower(strings.TrimPrefix(filepath.Ext(file), "."))
	for _, r := range t {
		if ext != "" && (strings.ToLower(r.Extension) == ext || r.Language == ext || slices.Contains(r.Aliases, ext)) {
			return r.Language, nil
		}
		known = append(known, r.Language)
	}
	if r, err := t.Find(shebang(code)); err == nil {
		return r.Language, nil
	}
	return "", known
}

// shebang returns the name of the interpreter in the first line of a program,
// without its version, or "".
func shebang(code string) string {
	line, _, _ := strings.Cut(code, "\n")
	line, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return ""
	}
	words := strings.Fields(line)
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
	}
	if len(words) == 0 {
		return ""
	}
	return strings.TrimRight(path.Base(words[0]), "0123456789.")
}

// OfKernel returns the language whose runner has that kernel, or the name of the kernel
// if there is none.
func (t Table) OfKernel(name string) string {
	for _, r := range t {
		if r.Kernel == name {
			return r.Language
		}
	}
	return name
}

// LoadDir returns the table with the runners of a directory added. It reads the
// files with the ending .yaml or .yml, in the order of their names. An error is
// of kind Invalid, and names the file and the fault in it.
func (t Table) LoadDir(dir string) (Table, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "runners: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".yaml" && ext != ".yml" {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := os.Open(name)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "runners: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(f, maxRunnerFile+1))
		f.Close()
		if err == nil && len(text) > maxRunnerFile {
			err = fmt.Errorf("more than %d bytes", maxRunnerFile)
		}
		if err == nil {
			t, err = t.Override(text)
		}
		if err != nil {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "runners: %s: %w", name, err),
				"see the keys in docs/reference/runners.md")
		}
	}
	return t, nil
}

// Override returns a copy of the table with the runners of a YAML text added.
// The text may hold several documents. A runner replaces the runner with its
// name, or goes to the end.
func (t Table) Override(text []byte) (Table, error) {
	out := slices.Clone(t)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	for {
		var r Runner
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			// The decoder's error has Go types, which mean nothing to an
			// operator.
			return nil, errors.New(unknownKey.ReplaceAllString(err.Error(), `there is no key "$1"`))
		}
		if err := r.check(); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(out, func(o Runner) bool { return o.Language == r.Language }); i >= 0 {
			out[i] = r
		} else if out = append(out, r); len(out) > maxRunners {
			return nil, fmt.Errorf("more than %d languages", maxRunners)
		}
	}
	return out, out.checkNames()
}

// check returns an error if a runner cannot work.
func (r Runner) check() error {
	if !isWord(r.Language) || r.Language != strings.ToLower(r.Language) {
		return fmt.Errorf("language: %q is not a name in lower case", r.Language)
	}
	if !isWord(r.Extension) {
		return fmt.Errorf("%s: extension: %q is not a file name extension", r.Language, r.Extension)
	}
	if len(r.Variants) == 0 {
		return fmt.Errorf("%s: variants: must not be empty", r.Language)
	}
	for i, v := range r.Variants {
		if len(v.Command) == 0 || v.Command[0] == "" {
			return fmt.Errorf("%s: variants: number %d has no command", r.Language, i+1)
		}
	}
	if kernels := language.Kernels(); r.Kernel != "" && !slices.Contains(kernels, r.Kernel) {
		return fmt.Errorf("%s: kernel: %q is not one of %s", r.Language, r.Kernel, strings.Join(kernels, ", "))
	}
	if r.Installer != "" {
		if _, err := FindInstaller(r.Installer); err != nil {
			return fmt.Errorf("%s: installer: %w", r.Language, err)
		}
	}
	return nil
}

// checkNames returns an error if several runners have the same name.
func (t Table) checkNames() error {
	names := map[string]string{}
	for _, r := range t {
		for _, n := range append([]string{r.Language}, r.Aliases...) {
			if other, ok := names[n]; ok {
				return fmt.Errorf("%s: the name %q is already a name of %s", r.Language, n, other)
			}
			names[n] = r.Language
		}
	}
	return nil
}

// isWord reports whether s is a name of a language or file: letters, digits and
// a few other characters.
func isWord(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("+#._-", r)
	}) && s[0] != '.' && s[0] != '-'
}

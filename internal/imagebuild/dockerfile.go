package imagebuild

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on a Dockerfile.
const (
	maxDockerfile   = 1 << 20
	maxInstructions = 1000
)

// An instruction is an instruction of a Dockerfile.
type instruction struct {
	line  int    // its first line, from 1
	name  string // in capitals
	flags map[string]string
	text  string   // the text after the flags
	list  []string // text as a JSON list; nil if it is not a list
}

// known maps the supported instructions to their supported flags.
var known = map[string][]string{
	"FROM": nil, "ARG": nil, "RUN": nil, "COPY": {"chown", "chmod"}, "ENV": nil, "WORKDIR": nil,
	"USER": nil, "LABEL": nil, "EXPOSE": nil, "ENTRYPOINT": nil, "CMD": nil,
}

// lists are the instructions that accept a JSON list.
var lists = []string{"RUN", "COPY", "ENTRYPOINT", "CMD"}

func (i *instruction) String() string {
	text := i.text
	const most = 100
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return i.name + " " + text
}

// wrong returns an error about i, of kind Invalid.
func (i *instruction) wrong(format string, args ...any) error {
	return i.at(sandbox.Errorf(sandbox.Invalid, format, args...))
}

// at adds the position of i to an error.
func (i *instruction) at(err error) error {
	return sandbox.Wrap(err, "Dockerfile:"+itoa(i.line), i.name)
}

// hereDocument matches the start of a here-document, as shells and newer builders
// recognise it.
var hereDocument = regexp.MustCompile(`(^|[^<])<<-?\s*["']?[A-Za-z_]`)

// parse parses a Dockerfile. It refuses an unsupported instruction before the
// build starts.
func parse(text string) ([]*instruction, error) {
	if len(text) > maxDockerfile {
		return nil, sandbox.Errorf(sandbox.Invalid, "the Dockerfile has %d bytes; the maximum is %d", len(text), maxDockerfile)
	}
	var all []*instruction
	stages := 0
	for _, l := range logicalLines(text) {
		i, err := parseInstruction(l)
		if err != nil {
			return nil, err
		}
		switch {
		case i.name == "FROM":
			stages++
		case stages == 0 && i.name != "ARG":
			return nil, i.wrong("is before the first FROM")
		}
		if stages > 1 {
			return nil, sandbox.WithHint(i.at(sandbox.Errorf(sandbox.Unsupported, "this is the second FROM, but builds with this driver have one stage")),
				"build each stage separately, or use a container engine: --driver docker")
		}
		if all = append(all, i); len(all) > maxInstructions {
			return nil, sandbox.Errorf(sandbox.Invalid, "the Dockerfile has more than %d instructions", maxInstructions)
		}
	}
	if stages == 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the Dockerfile has no FROM"), "begin the file with FROM and the base image")
	}
	return all, nil
}

// A logicalLine is the text of an instruction, from one or more lines.
type logicalLine struct {
	line int
	text string
}

// logicalLines joins lines that end in a backslash with the next line. It drops
// comments and empty lines.
func logicalLines(text string) []logicalLine {
	var all []logicalLine
	var now *logicalLine
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		line = strings.TrimRight(line, "\r\n")
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "#") {
			// The directive "escape" would replace the backslash.
			// parseInstruction refuses it.
			if now != nil || !isEscapeDirective(bare) {
				continue
			}
			all = append(all, logicalLine{n, "# escape"})
			continue
		}
		if bare == "" {
			continue
		}
		if now == nil {
			now = &logicalLine{line: n}
		}
		rest, more := strings.CutSuffix(strings.TrimRight(line, " \t"), `\`)
		if !more {
			rest = line
		}
		now.text += rest
		if !more {
			all = append(all, *now)
			now = nil
		}
	}
	if now != nil {
		all = append(all, *now)
	}
	return all
}

// isEscapeDirective reports whether a comment is a directive that replaces the
// backslash as the continuation character.
func isEscapeDirective(comment string) bool {
	name, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(comment, "#")), "=")
	return ok && strings.EqualFold(strings.TrimSpace(name), "escape") && strings.TrimSpace(value) != `\`
}

func parseInstruction(l logicalLine) (*instruction, error) {
	name, text := cutWord(strings.TrimSpace(l.text))
	i := &instruction{line: l.line, name: strings.ToUpper(name), flags: map[string]string{}, text: text}
	if i.name == "#" {
		return nil, sandbox.Errorf(sandbox.Unsupported, "Dockerfile:%d: the directive escape is not supported", l.line)
	}
	flags, ok := known[i.name]
	if !ok {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "Dockerfile:%d: the instruction %s is not supported", l.line, shorten(i.name)),
			"use one of %s, or build with a container engine: --driver docker", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	for strings.HasPrefix(i.text, "--") {
		word, rest := cutWord(i.text)
		flag, value, _ := strings.Cut(word[2:], "=")
		if !slices.Contains(flags, flag) {
			return nil, sandbox.WithHint(i.at(sandbox.Errorf(sandbox.Unsupported, "the flag --%s is not supported", shorten(flag))),
				"omit the flag, or build with a container engine: --driver docker")
		}
		i.flags[flag], i.text = value, rest
	}
	if i.text == "" {
		return nil, i.wrong("has no arguments")
	}
	if slices.Contains(lists, i.name) {
		if hereDocument.MatchString(i.text) {
			return nil, sandbox.WithHint(i.at(sandbox.Errorf(sandbox.Unsupported, "here-documents are not supported")),
				"put the text into a file, and use COPY")
		}
		// A text that looks like a list but is not JSON is for the shell.
		if strings.HasPrefix(i.text, "[") {
			var list []string
			if json.Unmarshal([]byte(i.text), &list) == nil {
				i.list = append([]string{}, list...)
			}
		}
	}
	return i, nil
}

// cutWord splits text at the first run of blanks.
func cutWord(text string) (word, rest string) {
	n := strings.IndexAny(text, " \t")
	if n < 0 {
		return text, ""
	}
	return text[:n], strings.TrimSpace(text[n:])
}

// argv returns the command of a RUN, CMD or ENTRYPOINT: its list, or its text as
// an argument of the shell.
func (i *instruction) argv() []string {
	if i.list != nil {
		return i.list
	}
	return []string{"/bin/sh", "-c", i.text}
}

package hostfiles

import (
	"io"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// ignoring applies the .gitignore files of a tree. As in git, the last matching
// pattern decides, files in an ignored directory stay ignored, and .git itself
// is ignored.
type ignoring struct {
	on      bool
	rules   []ignoreRule
	skipped []string // ignored directories
}

// An ignoreRule is a line of a .gitignore file. The parts of its pattern are
// those between slashes.
type ignoreRule struct {
	base     string // the directory of the .gitignore file
	parts    []string
	anchored bool
	dirOnly  bool
	negated  bool
}

// maxIgnore bounds the size of a .gitignore file, in bytes.
const maxIgnore = 1 << 20

// read adds the rules of a directory's .gitignore, if there is one.
func (g *ignoring) read(tree *safepath.Dir, dir string) {
	g.on = true
	f, _, err := tree.Open(path.Join(dir, ".gitignore"))
	if err != nil {
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIgnore))
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		if r, ok := parseIgnore(dir, strings.TrimSuffix(line, "\r")); ok {
			g.rules = append(g.rules, r)
		}
	}
}

func parseIgnore(base, line string) (ignoreRule, bool) {
	r := ignoreRule{base: base}
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = trimBlanks(line)
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false
	}
	r.parts = strings.Split(line, "/")
	for i, part := range r.parts {
		if len(part) > 1 && strings.Trim(part, "*") == "" {
			r.parts[i] = "**"
		}
	}
	if last := len(r.parts) - 1; r.anchored && r.parts[last] == "**" {
		r.parts = append(r.parts, "*") // at the end, ** does not match the directory itself
	}
	return r, true
}

// trimBlanks removes the blanks at the end of a line, except an escaped blank.
func trimBlanks(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			end = i + 1
		} else if line[i] != ' ' {
			end = i + 1
		}
	}
	return line[:min(end, len(line))]
}

// ignores reports whether a file is ignored. The caller must ask for a directory
// before its content.
func (g *ignoring) ignores(name string, isDir bool) bool {
	if !g.on {
		return false
	}
	for _, dir := range g.skipped {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	out := false
	for _, r := range g.rules {
		if r.fits(name, isDir) {
			out = !r.negated
		}
	}
	if out = out || path.Base(name) == ".git"; out && isDir {
		g.skipped = append(g.skipped, name+"/")
	}
	return out
}

func (r ignoreRule) fits(name string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.base != "." {
		rest, ok := strings.CutPrefix(name, r.base+"/")
		if !ok {
			return false
		}
		name = rest
	}
	if !r.anchored {
		return matchPart(r.parts[0], path.Base(name))
	}
	return matchParts(r.parts, strings.Split(name, "/"))
}

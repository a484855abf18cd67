package hostfiles

import (
	"bufio"
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

type ignoreRule struct {
	base     string // the directory of the .gitignore file
	pattern  []string
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
	lines := bufio.NewScanner(io.LimitReader(f, maxIgnore))
	for lines.Scan() {
		if r, ok := parseIgnore(dir, lines.Text()); ok {
			g.rules = append(g.rules, r)
		}
	}
}

func parseIgnore(base, line string) (ignoreRule, bool) {
	r := ignoreRule{base: base}
	line = strings.TrimRight(line, " \t\r")
	if line == "" || line[0] == '#' {
		return r, false
	}
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		r.negated, line = true, rest
	}
	line = strings.TrimPrefix(line, `\`)
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirOnly, line = true, rest
	}
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return r, false
	}
	r.pattern = strings.Split(line, "/")
	return r, true
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
	out := path.Base(name) == ".git"
	for _, r := range g.rules {
		if r.fits(name, isDir) {
			out = !r.negated
		}
	}
	if out && isDir {
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
		ok, err := path.Match(r.pattern[0], path.Base(name))
		return ok && err == nil
	}
	return matchParts(r.pattern, strings.Split(name, "/"))
}

// matchParts matches a path part by part; ** matches any number of parts.
func matchParts(pattern, parts []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			if len(pattern) == 1 {
				return len(parts) > 0
			}
			for i := range len(parts) + 1 {
				if matchParts(pattern[1:], parts[i:]) {
					return true
				}
			}
			return false
		}
		if len(parts) == 0 {
			return false
		}
		if ok, err := path.Match(pattern[0], parts[0]); !ok || err != nil {
			return false
		}
		pattern, parts = pattern[1:], parts[1:]
	}
	return len(parts) == 0
}

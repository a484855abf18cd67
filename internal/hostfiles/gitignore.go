package hostfiles

import (
	"io"
	"math"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/glob"
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

// An ignoreRule is a rule of the .gitignore file in the directory base.
type ignoreRule struct {
	base string
	glob.Rule
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
	rules, _ := glob.ParseRules(string(text), math.MaxInt)
	for _, r := range rules {
		g.rules = append(g.rules, ignoreRule{dir, r})
	}
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
			out = !r.Negated()
		}
	}
	if out = out || path.Base(name) == ".git"; out && isDir {
		g.skipped = append(g.skipped, name+"/")
	}
	return out
}

func (r *ignoreRule) fits(name string, isDir bool) bool {
	if r.base != "." {
		rest, ok := strings.CutPrefix(name, r.base+"/")
		if !ok {
			return false
		}
		name = rest
	}
	return r.Matches(name, isDir)
}

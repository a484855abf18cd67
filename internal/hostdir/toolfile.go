package hostdir

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// toolFiles are names of files and directories that programs on a machine
// execute or obey without being asked: version control, shells, editors, agents,
// package managers. A sandbox's program that plants one has its code run outside.
// CLAUDE.md, AGENTS.md and .github are not among them: the first two are documents
// that people have agents write, and .github is executed elsewhere, after a push.
var toolFiles = []string{
	".git", ".gitconfig", ".hg", ".jj", ".svn", ".husky", ".githooks", ".pre-commit-config.yaml",
	".envrc", ".direnv", ".mise.toml", ".bashrc", ".bash_aliases", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".tmux.conf", ".ssh", ".gnupg", ".netrc", "_netrc", ".config", ".local",
	".vscode", ".idea", ".devcontainer", ".devcontainer.json", ".zed", ".vimrc", ".vim", ".exrc", ".nvimrc", ".nvim.lua",
	".emacs", ".emacs.d", ".dir-locals.el", ".dir-locals-2.el", ".gdbinit", ".lldbinit",
	".claude", ".claude.json", ".mcp.json", ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".clinerules", ".gemini", ".codex",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnp.cjs", ".pnp.loader.mjs", ".pnpmfile.cjs", ".pypirc", ".cargo", ".mvn", ".bazelrc",
}

// shortName is the form of the names of at most 8 and 3 characters that Windows
// gives to files with longer ones: VSCODE~1 is .vscode.
var shortName = regexp.MustCompile(`^([^~.]{1,6}~[0-9]|[^~.]{1,5}~[0-9]{2}|[^~.]{1,4}~[0-9]{3}|[^~.]{1,3}~[0-9]{4}|[^~.]{1,2}~[0-9]{5})(\.[^.]{0,3})?$`)

// foldings are the letters that full case folding, as on APFS, makes several
// letters of ASCII.
var foldings = strings.NewReplacer("ß", "ss", "ẞ", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// ToolFile returns the part of a name, which has slashes, up to the first part
// that names a file or directory which programs on this machine execute or obey;
// it is "" if none does. A backslash counts as a slash, as it is one on Windows and
// on its shares. A short name of Windows may be the name of any tool file.
func ToolFile(name string) string {
	for i := 0; i < len(name); {
		end := len(name)
		if n := strings.IndexAny(name[i:], `/\`); n >= 0 {
			end = i + n
		}
		if plain := plainName(name[i:end]); slices.Contains(toolFiles, plain) || shortName.MatchString(plain) {
			return name[:end]
		}
		i = end + 1
	}
	return ""
}

// marks are the names by which Git takes a directory for a repository, whatever
// its own name is, and executes what its config says.
var marks = []string{"HEAD", "objects", "refs", "commondir"}

// isRepository reports whether Git takes a directory for a repository that has
// some of the marks. With commondir the others may be in another directory.
func isRepository(has func(mark string) bool) bool {
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// Repositories returns the directories below dir, and dir itself as ".", that are
// Git repositories once names are there, and have one of the names in them. What is
// there already counts.
func Repositories(dir *safepath.Dir, names []string) []string {
	added := map[string]map[string]bool{} // marks by directories
	for _, name := range names {
		for at := name; at != "."; at = path.Dir(at) {
			above := path.Dir(at)
			if added[above] == nil {
				added[above] = map[string]bool{}
			}
			for _, mark := range marks {
				if plainName(path.Base(at)) == strings.ToLower(mark) {
					added[above][mark] = true
				}
			}
		}
	}
	var found []string
	for at, marks := range added {
		if isRepository(func(mark string) bool {
			if marks[mark] {
				return true
			}
			_, err := dir.Lstat(path.Join(at, mark))
			return err == nil
		}) {
			found = append(found, at)
		}
	}
	slices.Sort(found)
	return found
}

// plainName is a name as file systems may take it that do not tell all names
// apart: macOS passes over case and characters that are not seen, Windows over
// case, dots and blanks at the end, and what follows a colon.
func plainName(part string) string {
	part, _, _ = strings.Cut(part, ":")
	part = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // signs such as ſ, too
	}, foldings.Replace(part))
	part = strings.TrimRight(part, ". ")
	if strings.HasPrefix(part, "git~") { // its short name on Windows
		return ".git"
	}
	return part
}

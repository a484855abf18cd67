package hostfiles

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// toolFiles are names of files and directories that programs on a machine execute
// or obey automatically: version control, shells, editors, agents, package
// managers. If a sandbox could create one, its code would run outside. CLAUDE.md,
// AGENTS.md and .github are not included. Agents write the first two as
// documents, and .github is executed elsewhere, after a push.
var toolFiles = []string{
	".git", ".gitconfig", ".hg", ".jj", ".svn", ".husky", ".githooks", ".pre-commit-config.yaml",
	".envrc", ".direnv", ".mise.toml", ".bashrc", ".bash_aliases", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".tmux.conf", ".ssh", ".gnupg", ".netrc", "_netrc", ".config", ".local",
	".vscode", ".idea", ".devcontainer", ".devcontainer.json", ".zed", ".vimrc", ".vim", ".exrc", ".nvimrc", ".nvim.lua",
	".emacs", ".emacs.d", ".dir-locals.el", ".dir-locals-2.el", ".gdbinit", ".lldbinit",
	".claude", ".claude.json", ".mcp.json", ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".clinerules", ".gemini", ".codex",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnp.cjs", ".pnp.loader.mjs", ".pnpmfile.cjs", ".pypirc", ".cargo", ".mvn", ".bazelrc",
}

// shortName matches the short names, of at most 8 and 3 characters, that Windows
// gives to files with longer names: VSCODE~1 is .vscode.
var shortName = regexp.MustCompile(`^([^~.]{1,6}~[0-9]|[^~.]{1,5}~[0-9]{2}|[^~.]{1,4}~[0-9]{3}|[^~.]{1,3}~[0-9]{4}|[^~.]{1,2}~[0-9]{5})(\.[^.]{0,3})?$`)

// foldings are the letters that full case folding, as on APFS, turns into several
// ASCII letters.
var foldings = strings.NewReplacer("ß", "ss", "ẞ", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// toolFile returns a name up to its first part that is a tool file, or "" if
// there is none. Slashes separate the parts. A tool file is a file or directory
// that programs on this machine execute or obey. A backslash counts as a slash,
// because Windows and its shares treat it as one. A Windows short name counts as
// a tool file, because it may refer to one.
func toolFile(name string) string {
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

// marks are the names by which Git recognises a repository. A repository's own
// name does not matter, and Git executes commands in its config.
var marks = []string{"HEAD", "objects", "refs", "commondir"}

// isRepository reports whether Git takes a directory with some of the marks for a
// repository. With commondir, the other marks may be in another directory.
func isRepository(has func(mark string) bool) bool {
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}

// repositories returns the directories below dir that would be Git repositories
// once names exist, and that contain one of names. dir itself is ".". Existing
// files count, too.
func repositories(dir *safepath.Dir, names []string) []string {
	added := map[string]map[string]bool{} // marks by directory
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

// plainName returns a name as file systems that do not distinguish all names may
// read it. macOS ignores case and invisible characters. Windows ignores case,
// dots and blanks at the end, and everything after a colon.
func plainName(part string) string {
	part, _, _ = strings.Cut(part, ":")
	part = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // also folds letters such as ſ
	}, foldings.Replace(part))
	part = strings.TrimRight(part, ". ")
	if strings.HasPrefix(part, "git~") { // the short name of .git on Windows
		return ".git"
	}
	return part
}

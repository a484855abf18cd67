package hostdir

import (
	"slices"
	"strings"
	"unicode"
)

// toolFiles are names of files and directories that programs on a machine
// execute or obey without being asked: version control, shells, editors, agents,
// package managers. A sandbox's program that plants one has its code run outside.
var toolFiles = []string{
	".git", ".gitconfig", ".hg", ".husky", ".githooks",
	".envrc", ".direnv", ".mise.toml", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".ssh", ".gnupg", ".config",
	".vscode", ".idea", ".devcontainer", ".devcontainer.json", ".zed", ".vimrc", ".exrc", ".nvimrc", ".gdbinit", ".lldbinit",
	".claude", ".claude.json", ".mcp.json", ".cursor", ".windsurf", ".gemini", ".codex",
	".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnpmfile.cjs", ".pypirc", ".cargo",
}

// ToolFile returns the part of a name, which has slashes, up to the first part
// that names a file or directory which programs on this machine execute or obey;
// it is "" if none does.
func ToolFile(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if slices.Contains(toolFiles, plainName(part)) {
			return strings.Join(parts[:i+1], "/")
		}
	}
	return ""
}

// plainName is a name as file systems may take it that do not tell all names
// apart: macOS passes over case and characters that are not seen, Windows over
// case, dots and blanks at the end, and what follows a colon.
func plainName(part string) string {
	part, _, _ = strings.Cut(part, ":")
	part = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // signs such as ſ, too
	}, part)
	part = strings.TrimRight(part, ". ")
	if strings.HasPrefix(part, "git~") { // its short name on Windows
		return ".git"
	}
	return part
}

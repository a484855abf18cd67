package kernels

import (
	_ "embed"
	"path"
	"slices"
	"strings"
)

// A Program is the kernel of one language.
type Program struct {
	// Language is the name of the language: python, javascript, typescript, bash
	// or sh.
	Language string
	// Commands are the interpreters that run the kernel, in order of preference.
	// The guest looks them up in the sandbox's PATH.
	Commands []string
	// Shell is set for a shell: it has descriptors 5 and 6, and its requests are
	// lines.
	Shell bool
}

// programs are all kernels. A TypeScript context is a JavaScript one whose runs
// have their types removed. Every Bun can do that, but not every Node.
var programs = []Program{
	{Language: "python", Commands: []string{"python3", "python"}},
	{Language: "javascript", Commands: []string{"node", "nodejs", "bun"}},
	{Language: "typescript", Commands: []string{"bun", "node", "nodejs"}},
	{Language: "bash", Commands: []string{"bash"}, Shell: true},
	{Language: "sh", Commands: []string{"sh"}, Shell: true},
}

// aliases are other names of languages.
var aliases = map[string]string{
	"python3": "python", "py": "python",
	"js": "javascript", "node": "javascript", "nodejs": "javascript",
	"ts":    "typescript",
	"shell": "bash",
}

// Languages returns the names of the languages that have a kernel.
func Languages() []string {
	var names []string
	for _, p := range programs {
		names = append(names, p.Language)
	}
	return names
}

// Find returns the kernel of a language, and whether there is one. The name or
// alias may be in any case.
func Find(language string) (Program, bool) {
	name := strings.ToLower(language)
	if full, ok := aliases[name]; ok {
		name = full
	}
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Language == name })
	if i < 0 {
		return Program{}, false
	}
	return programs[i], true
}

//go:embed python/boot.py
var pythonBoot string

//go:embed python/kernel.py
var pythonKernel string

//go:embed python/rich.py
var pythonRich string

//go:embed javascript/boot.js
var javascriptBoot string

//go:embed javascript/kernel.js
var javascriptKernel string

//go:embed javascript/transform.js
var javascriptTransform string

//go:embed shell/kernel.sh
var shellKernel string

// Args returns the arguments with which command, one of Commands, starts the
// kernel.
func (p Program) Args(command string) []string {
	switch p.Language {
	case "python":
		return []string{"-c", pythonBoot}
	case "javascript", "typescript":
		if path.Base(command) == "bun" {
			// Bun would otherwise fetch a missing module.
			return []string{"--no-install", "-e", javascriptBoot}
		}
		return []string{"-e", javascriptBoot}
	case "bash":
		// The shell reads its requests as a script from descriptor 0. Programs
		// of the user never inherit that descriptor.
		return []string{"--norc", "--noprofile", "-c", `exec "$0" --norc --noprofile -s <&3`, command}
	default:
		return []string{"-c", `exec "$0" -s <&3`, command}
	}
}

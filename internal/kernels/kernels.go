package kernels

import (
	_ "embed"
	"path"
	"slices"
	"strings"
)

// A Program is the kernel of one language.
type Program struct {
	// Language is its name: python, javascript, typescript, bash or sh.
	Language string
	// Commands are the interpreters that run it, the preferred first, to be
	// looked up in the sandbox's PATH.
	Commands []string
	// Shell says that it is one: it has descriptors 5 and 6, and its
	// requests are lines.
	Shell bool
}

// programs are all kernels. A TypeScript context is a JavaScript one whose
// runs have their types stripped, which every Bun does and not every Node.
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

// Languages returns the languages that have a kernel.
func Languages() []string {
	var names []string
	for _, p := range programs {
		names = append(names, p.Language)
	}
	return names
}

// Find returns the kernel of a language, by its name or a usual alias in any
// case, and whether there is one.
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

// Args returns the arguments that make an interpreter, one of Commands, start
// the kernel.
func (p Program) Args(command string) []string {
	switch p.Language {
	case "python":
		return []string{"-c", pythonBoot}
	case "javascript", "typescript":
		if path.Base(command) == "bun" {
			// Left to itself it fetches a module that is not there.
			return []string{"--no-install", "-e", javascriptBoot}
		}
		return []string{"-e", javascriptBoot}
	case "bash":
		// The shell reads its requests as a script from descriptor 0, which no
		// program of the user's has.
		return []string{"--norc", "--noprofile", "-c", `exec "$0" --norc --noprofile -s <&3`, command}
	default:
		return []string{"-c", `exec "$0" -s <&3`, command}
	}
}

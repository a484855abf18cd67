package kernels

import (
	_ "embed"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/language"
)

// A Program is a kernel of one language.
type Program struct {
	// Name is the name of the kernel: that of the language, or of another kernel
	// of the language.
	Name string
	// Language is the name of a language with contexts in the table of languages.
	Language string
	// Commands are the interpreters that run the kernel, in order of preference.
	// The guest looks them up in the sandbox's PATH.
	Commands []string
	// Shell is set for a shell: it has descriptors 5 and 6, and its requests are
	// lines.
	Shell bool
	// Fields is set for an interpreter that can neither read JSON nor use a
	// descriptor that it did not open. Its requests are fields, and its events
	// come on a pipe. It opens both pipes by their paths in /proc, so its user
	// must own them. See [Next].
	Fields bool
	// Source, if not empty, is the kernel as a file, which is descriptor 5.
	Source string
}

// Moves reports whether the interpreter can still change its directory and its
// environment after its start, before its first run: see [Run].
func (p Program) Moves() bool { return p.Language == language.Python }

// Pieces reports whether the interpreter writes one line of output in several
// pieces: R writes the index, each value and the end of a line of print by itself.
func (p Program) Pieces() bool { return p.Language == language.R }

// EndsApart reports whether E2B's kernel of the language sends the end of a
// printed line as a message of its own.
func (p Program) EndsApart() bool { return p.Language == language.Java }

// Find returns the kernel of that name, or the usual one of the language with that
// name or alias, and whether there is one. The name may be in any case.
func Find(name string) (Program, bool) {
	l, ok := language.Find(name)
	kernel := l.Name
	if !ok {
		kernel = strings.ToLower(name)
		l, ok = language.OfKernel(kernel)
	}
	if !ok || l.Context == nil {
		return Program{}, false
	}
	p := Program{Name: kernel, Language: l.Name, Commands: l.Context.Programs, Shell: l.Context.Shell, Fields: l.Context.Fields}
	if l.Context.Source {
		p.Source = javaKernel
	}
	return p, true
}

//go:embed python/boot.py
var pythonBoot string

//go:embed python/kernel.py
var pythonKernel string

//go:embed python/rich.py
var pythonRich string

//go:embed python/backend.py
var pythonBackend string

//go:embed python/shim.py
var pythonShim string

//go:embed python/syntax.py
var pythonSyntax string

//go:embed python/shell.py
var pythonShell string

//go:embed python/magics.py
var pythonMagics string

//go:embed python/ipython.py
var pythonIPython string

//go:embed javascript/boot.js
var javascriptBoot string

//go:embed javascript/kernel.js
var javascriptKernel string

//go:embed javascript/transform.js
var javascriptTransform string

//go:embed java/Kernel.java
var javaKernel string

//go:embed r/boot.R
var rBoot string

//go:embed r/kernel.R
var rKernel string

//go:embed shell/kernel.sh
var shellKernel string

// javaArgs have the launcher compile the kernel in memory. The heap is bounded by
// half of the memory that the sandbox has; the compiler and the classes take as
// much again. A quick start is worth more to cells than the second compiler, and
// one collector's thread suffices. The environment of a process is not to be
// changed in Java, so the kernel opens the map of it.
var javaArgs = []string{
	"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxRAMPercentage=50", "-Xshare:auto",
	"-Dfile.encoding=UTF-8", "-Djava.awt.headless=true",
	"--add-opens", "java.base/java.util=ALL-UNNAMED",
	"--add-modules", "jdk.jshell", "--source", "11", "/proc/self/fd/5",
}

// Args returns the arguments with which command, one of Commands, starts the
// kernel.
func (p Program) Args(command string) []string {
	switch p.Language {
	case language.Python:
		return []string{"-c", pythonBoot}
	case language.JavaScript, language.TypeScript:
		if path.Base(command) == "bun" {
			// Bun would otherwise fetch a missing module.
			return []string{"--no-install", "-e", javascriptBoot}
		}
		return []string{"-e", javascriptBoot}
	case language.R:
		return []string{"-e", strings.TrimSpace(rBoot)}
	case language.Java:
		return javaArgs
	case language.Bash:
		// The shell reads its requests as a script from descriptor 0. Programs
		// of the user never inherit that descriptor.
		return []string{"--norc", "--noprofile", "-c", `exec "$0" --norc --noprofile -s <&3`, command}
	default:
		return []string{"-c", `exec "$0" -s <&3`, command}
	}
}

// PlotBackend returns a module of Python: a backend of matplotlib that keeps the
// figures of a program. It writes them to the directory shown beside itself, a
// file of JSON for each, whose object is an [Event]'s Data. With keepSaved it also
// keeps an open figure that the program has only saved as a file.
func PlotBackend(keepSaved bool) string {
	keep := map[bool]string{true: "True", false: "False"}[keepSaved]
	return fmt.Sprintf("%s\n\nKEEP_SAVED = %s\nRICH = %s\n", pythonBackend, keep, strconv.QuoteToASCII(pythonRich))
}

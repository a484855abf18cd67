package language

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// The names of the languages to which code refers.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript"
	Bash       = "bash"
	Sh         = "sh"
	R          = "r"
	Java       = "java"
)

// IPython is the name of the kernel by which IPython runs the code of a context
// of Python.
const IPython = "ipython"

// Default is the language of code whose caller named none.
const Default = Python

// PackageDir is the directory into which packages are installed. It is in the
// workspace, and so persists with it. Programs of packages are in its
// subdirectory bin, which is on the guest's PATH.
const PackageDir = sandbox.WorkDir + "/.glovebox"

// NodeModules is the directory for modules of JavaScript in PackageDir.
const NodeModules = PackageDir + "/lib/node_modules"

// Placeholders in the Command of a Variant and in Env.
const (
	PlaceFile = "{file}" // the program's file
	PlaceDir  = "{dir}"  // the file's directory, private to the run
	PlaceCwd  = "{cwd}"  // the run's working directory
)

// A Language is one row of the table.
type Language struct {
	// Name is in lower case. Aliases are other names.
	Name    string
	Aliases []string
	// Extension is the extension of the language's files, without the dot.
	Extension string
	// Env is added to the environment of programs.
	Env map[string]string
	// Variants are the ways to run a file, in order of preference.
	Variants []Variant
	// VersionArg is the argument with which a program prints its version;
	// --version if empty.
	VersionArg string
	// Context is nil for a language without contexts.
	Context *Context
	// Warm names modules that a box of a pool imports ahead.
	Warm []string
	// Installer names the installer of packages; "" if there is none.
	Installer string
	// Package is the Debian package of the language. Image is an image that has
	// the language.
	Package, Image string
}

// A Variant is one way to run a file.
type Variant struct {
	Command []string // with placeholders
	Detect  []string // programs that must be on the PATH
	Probe   []string // an argv that must exit with code 0
}

// A Context describes the live interpreters of a language. Package kernels has
// the program that each of them runs.
type Context struct {
	// Programs are the interpreters, in order of preference.
	Programs []string
	// Shell is set for a shell.
	Shell bool
	// Fields is set for an interpreter without JSON: see package kernels.
	Fields bool
	// Source is set for an interpreter that reads its kernel from a file: see
	// package kernels.
	Source bool
	// Others are the names of further kernels of the language. A runner selects
	// one; see package kernels.
	Others []string
	// Nothing is code that does nothing.
	Nothing string
	// Ahead makes a warm box start an interpreter of the language, unless it has
	// one of an earlier row.
	Ahead bool
}

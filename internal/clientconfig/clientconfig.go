// Package clientconfig puts Glovebox into the configuration files of MCP
// clients, and takes it out again.
//
// A client is a row of a table: where its file is on each system, and how a
// server is written in it. [Plan] works out what a file would become, without
// touching it; [Change.Apply] writes it. A file is merged, never rewritten:
// comments, order, unknown keys and the file's own indentation stay byte for
// byte. The file that was there is kept beside it.
//
// Only the command line imports this package. It keeps nothing between calls.
package clientconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Server is how a client reaches Glovebox: as a program that it starts, or
// at a URL.
type Server struct {
	// Name is what the client calls it.
	Name string
	// Command, with an absolute path, and Args start it; Command is "" for one
	// at a URL.
	Command string
	Args    []string
	// URL is where a server listens, and Token what it wants to see.
	URL, Token string
}

// TokenVariable is the environment variable that holds the token where a
// client's file only names it.
const TokenVariable = "GLOVEBOX_TOKEN"

// A Scope says whose configuration is meant.
type Scope string

// The scopes: a person's own files, and those of the project in a directory,
// which are often shared and so never get a token.
const (
	User    Scope = "user"
	Project Scope = "project"
)

// An Environment is where the files are, and what else tells which clients
// there are. Paths are written as its system writes them, so that tests can
// ask for those of any.
type Environment struct {
	OS      string              // as runtime.GOOS
	Home    string              // the user's home directory
	Project string              // the project's directory
	Getenv  func(string) string // the environment
	// Exists reports whether there is a file or directory of that path.
	Exists func(path string) bool
	// InPath reports whether there is a program of that name.
	InPath func(name string) bool
}

// A Change is what becomes of one file.
type Change struct {
	Client Client
	Path   string
	// Before is the file's content, nil if there is none; After what it
	// becomes. They are equal if there is nothing to do.
	Before, After []byte
	// Secret says that After has a token in it.
	Secret bool
	// Note is what a person must still do, or "".
	Note string
}

// Needed reports whether Apply would change anything.
func (c Change) Needed() bool { return string(c.Before) != string(c.After) }

// Plan works out what adding s to the file of c means, or replacing the entry
// of that name. The errors are of kind Unsupported for what the client cannot
// do, and Invalid for a file that cannot be understood, which is left alone.
func (c Client) Plan(env Environment, scope Scope, s Server) (Change, error) {
	change, err := c.read(env, scope)
	if err != nil {
		return Change{}, err
	}
	if s.URL != "" && c.remote == nil {
		return Change{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "%s starts its servers itself and cannot use one at a URL", c.Title),
			"leave --url out, or add the URL in its settings, as a connector")
	}
	var e entry
	if s.URL == "" {
		e = c.local(s)
	} else {
		e, change.Note, change.Secret = c.remote(s, scope)
	}
	change.After, err = c.format.set(change.Before, c.key, s.Name, e)
	return change, c.explain(err, change.Path)
}

// PlanRemoval works out what taking the server of that name out means.
func (c Client) PlanRemoval(env Environment, scope Scope, name string) (Change, error) {
	change, err := c.read(env, scope)
	if err != nil {
		return Change{}, err
	}
	if change.Before == nil {
		return change, nil
	}
	change.After, err = c.format.remove(change.Before, c.key, name)
	return change, c.explain(err, change.Path)
}

func (c Client) explain(err error, path string) error {
	if err == nil {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err),
		"it was left as it is; mend it, or add Glovebox by hand as --print shows for a new file")
}

// read returns a change of nothing.
func (c Client) read(env Environment, scope Scope) (Change, error) {
	path, err := c.path(env, scope)
	if err != nil {
		return Change{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, sandbox.Errorf(sandbox.Unavailable, "%s: %w", c.Title, err)
	}
	if data == nil && err == nil {
		data = []byte{}
	}
	return Change{Client: c, Path: path, Before: data, After: data}, nil
}

// path returns where the client's file is. It is written with the separators
// of the system that env describes.
func (c Client) path(env Environment, scope Scope) (string, error) {
	if scope == Project {
		if c.project == "" {
			return "", sandbox.Errorf(sandbox.Unsupported, "%s has no configuration of a project's own", c.Title)
		}
		return env.join(env.Project, c.project), nil
	}
	place, ok := c.user[env.OS]
	if !ok {
		place, ok = c.user["*"]
	}
	if !ok {
		return "", sandbox.Errorf(sandbox.Unsupported, "%s has no known configuration file on %s", c.Title, env.OS)
	}
	return env.expand(place)
}

// Installed reports whether the client seems to be on this machine: its
// directory is there, or its program.
func (c Client) Installed(env Environment) bool {
	for _, name := range c.programs {
		if env.InPath(name) {
			return true
		}
	}
	path, err := c.path(env, User)
	if err != nil {
		return false
	}
	if env.Exists(path) {
		return true
	}
	// A file in the home directory itself says nothing by its directory.
	dir := path[:strings.LastIndexAny(path, `/\`)]
	return dir != env.Home && env.Exists(dir)
}

// expand replaces the variable that begins a place by the directory it stands
// for.
func (env Environment) expand(place string) (string, error) {
	variable, rest, _ := strings.Cut(place, "/")
	switch variable {
	case "~":
		return env.join(env.Home, rest), nil
	case "$XDG_CONFIG_HOME":
		if dir := env.Getenv("XDG_CONFIG_HOME"); env.absolute(dir) {
			return env.join(dir, rest), nil
		}
		return env.join(env.Home, ".config/"+rest), nil
	case "$CODEX_HOME":
		if dir := env.Getenv("CODEX_HOME"); env.absolute(dir) {
			return env.join(dir, rest), nil
		}
		return env.join(env.Home, ".codex/"+rest), nil
	case "$APPDATA":
		if dir := env.Getenv("APPDATA"); env.absolute(dir) {
			return env.join(dir, rest), nil
		}
		return env.join(env.Home, "AppData/Roaming/"+rest), nil
	}
	return "", sandbox.Errorf(sandbox.Internal, "place %q begins with no known directory", place)
}

func (env Environment) join(dir, rest string) string {
	if env.OS == "windows" {
		return strings.TrimRight(dir, `\/`) + `\` + strings.ReplaceAll(rest, "/", `\`)
	}
	return strings.TrimRight(dir, "/") + "/" + rest
}

// absolute reports whether dir can be used: variables with relative paths are
// ignored, as the XDG specification has it.
func (env Environment) absolute(dir string) bool {
	if env.OS == "windows" {
		return len(dir) > 2 && dir[1] == ':' || strings.HasPrefix(dir, `\\`)
	}
	return strings.HasPrefix(dir, "/")
}

// Find returns the client of that name. The error is of kind Invalid and
// lists the names that there are.
func Find(name string) (Client, error) {
	all := Clients()
	i := slices.IndexFunc(all, func(c Client) bool { return c.Name == strings.ToLower(name) })
	if i >= 0 {
		return all[i], nil
	}
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.Name)
	}
	return Client{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "client: %q is not known", name),
		"use one of %s; for another client, glovebox mcp --help shows what to put into its configuration", strings.Join(names, ", "))
}

// resolve follows links, so that a file that is kept elsewhere is changed
// there and the link stays.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is a link to a file that is not there", path),
				"make the file that it names, or remove the link")
		}
		return path, nil
	}
	return real, err
}

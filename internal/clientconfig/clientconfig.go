// Package clientconfig adds Glovebox to the configuration files of MCP clients,
// and removes it.
//
// A client is a row of a table, with the path of its file on each system and the
// format of a server's entry. [Client.Plan] computes the new content of a file,
// without writing it; [Change.Apply] writes it. A change merges an entry into
// the file: comments, order, unknown keys and indentation stay byte for byte. A
// backup of the old file stays beside it. [Client.Ask] asks the client itself whether
// it reaches Glovebox.
//
// Only the command line imports this package. It keeps no state between calls.
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

// A Server describes how a client reaches Glovebox: as a program that the client
// starts, or at a URL.
type Server struct {
	// Name is the name of the server in the client.
	Name string
	// Command, an absolute path, and Args start the server. Command is "" for a
	// server at a URL.
	Command string
	Args    []string
	// URL is the server's address, and Token the bearer token for it.
	URL, Token string
	// Exported is true if the user has Token in the variable TokenVariable.
	Exported bool
	// WantsToken is true if the server needs a token. A project's entry then refers
	// to TokenVariable, even if Token is "".
	WantsToken bool
	// Approve makes clients with [Client.Approves] call the tools without asking.
	Approve bool
}

// JSON returns the configuration that most clients accept, with s in it. It never
// has the token.
func (s Server) JSON() (string, error) {
	e := command(s)
	if s.URL != "" {
		e = entry{{"type", "http"}, {"url", s.URL}, {"headers", entry{{"Authorization", "Bearer ${" + TokenVariable + "}"}}}}
	}
	text, err := jsonc{}.set(nil, "mcpServers", s.Name, e)
	return strings.TrimSuffix(string(text), "\n"), err
}

// TokenVariable is the environment variable with the token, for files that
// contain only a reference to it.
const TokenVariable = "GLOVEBOX_TOKEN"

// A Scope selects the user's or the project's configuration.
type Scope string

// The scopes: the user's own files, and the files of a project. Project files
// are often shared, so they never get a token.
const (
	User    Scope = "user"
	Project Scope = "project"
)

// An Environment describes where configuration files are and which clients are
// installed. Paths are in the syntax of its OS, so that tests can use any OS.
type Environment struct {
	OS      string              // as runtime.GOOS
	Home    string              // the user's home directory
	Project string              // the project's directory
	Getenv  func(string) string // the environment
	// Exists reports whether a file or directory exists at path.
	Exists func(path string) bool
	// InPath reports whether a program of that name is in PATH.
	InPath func(name string) bool
}

// A Change is the change of one file.
type Change struct {
	Client Client
	Path   string
	// Before is the file's content, or nil if there is no file. After is the new
	// content. They are equal if no change is needed.
	Before, After []byte
	// Removes is true if Apply removes the file: it contains only the entry of
	// Glovebox, which made it.
	Removes bool
	// Secret is true if After contains a token.
	Secret bool
	// Replaces is true if Before has an entry of that name.
	Replaces bool
	// Note is the remaining step for the user, or "".
	Note string
}

// Needed reports whether Apply would change the file.
func (c Change) Needed() bool { return string(c.Before) != string(c.After) }

// Plan returns the change that adds s to the file of c, or replaces the entry of
// that name. The error is of kind Unsupported if the client cannot use s. It is
// of kind Invalid if the file cannot be parsed; the file is then left alone.
func (c Client) Plan(env Environment, scope Scope, s Server) (Change, error) {
	change, err := c.read(env, scope)
	if err != nil {
		return Change{}, err
	}
	if s.URL != "" && c.remote == nil {
		return Change{}, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "%s starts its servers itself and cannot use a URL", c.Title),
			"omit --url, or add the URL as a connector in the settings of the client")
	}
	var e entry
	if s.URL == "" {
		e = c.local(s)
	} else {
		e, change.Note, change.Secret = c.remote(s, scope)
	}
	if s.Approve && c.Approves() {
		e = append(e, c.approve)
	}
	change.After, err = c.format.set(change.Before, c.key, s.Name, e)
	if err == nil && change.Before != nil {
		var without []byte
		without, err = c.format.remove(change.Before, c.key, s.Name)
		change.Replaces = string(without) != string(change.Before)
	}
	return change, c.explain(err, change.Path)
}

// PlanRemoval returns the change that removes the server of that name. If Glovebox
// made the file for it, and there is nothing else in the file, the change removes the
// file. Apply makes a backup of a file that was there before, so a backup without the
// server shows that Glovebox did not make the file.
func (c Client) PlanRemoval(env Environment, scope Scope, name string) (Change, error) {
	change, err := c.read(env, scope)
	if err != nil {
		return Change{}, err
	}
	if change.Before == nil {
		return change, nil
	}
	change.After, err = c.format.remove(change.Before, c.key, name)
	if err != nil || !change.Needed() {
		return change, c.explain(err, change.Path)
	}
	if text := strings.Join(strings.Fields(string(change.After)), ""); text == "" || text == "{}" {
		change.Removes, err = c.made(change, name)
	}
	return change, err
}

// made reports whether Glovebox made the file of a change, and not a link to it.
func (c Client) made(change Change, name string) (bool, error) {
	if fi, err := os.Lstat(change.Path); err != nil || !fi.Mode().IsRegular() {
		return false, nil
	}
	backups, err := change.Backups()
	if err != nil {
		return false, err
	}
	for _, path := range backups {
		data, err := os.ReadFile(path)
		if err != nil {
			return false, sandbox.Errorf(sandbox.Unavailable, "%s: %w", c.Title, err)
		}
		without, err := c.format.remove(data, c.key, name)
		if err != nil || string(without) == string(data) {
			return false, nil
		}
	}
	return true, nil
}

func (c Client) explain(err error, path string) error {
	if err == nil {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: %w", path, err),
		"repair the file, or add Glovebox by hand, as --print shows for a new file; nothing was changed")
}

// read returns a change without effect, with the file's current content.
func (c Client) read(env Environment, scope Scope) (Change, error) {
	path, err := c.Path(env, scope)
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

// Path returns the path of the client's file, in the syntax of env's system. The
// error is of kind Unsupported if the client has no such file.
func (c Client) Path(env Environment, scope Scope) (string, error) {
	path, err := c.path(env, scope)
	if err == nil && c.alternate != "" && !env.Exists(path) {
		other := path[:strings.LastIndexAny(path, `/\`)+1] + c.alternate
		if env.Exists(other) {
			return other, nil
		}
	}
	return path, err
}

// Has reports whether the client's file has a server of that name. The error is
// of kind Invalid if the file cannot be parsed.
func (c Client) Has(env Environment, scope Scope, name string) (bool, error) {
	change, err := c.PlanRemoval(env, scope, name)
	return change.Needed(), err
}

// path returns the usual path of the client's file.
func (c Client) path(env Environment, scope Scope) (string, error) {
	if scope == Project {
		if c.project == "" {
			return "", sandbox.Errorf(sandbox.Unsupported, "%s has no configuration for projects", c.Title)
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

// Installed reports whether the client seems to be installed: its program, its
// file or its directory exists.
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
	// The home directory itself always exists, so it is no sign of the client.
	dir := path[:strings.LastIndexAny(path, `/\`)]
	return dir != env.Home && env.Exists(dir)
}

// expand replaces the variable at the start of place by its directory.
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
	case "$CODEX_HOME", "$COPILOT_HOME":
		if dir := env.Getenv(variable[1:]); env.absolute(dir) {
			return env.join(dir, rest), nil
		}
		name, _, _ := strings.Cut(variable[1:], "_")
		return env.join(env.Home, "."+strings.ToLower(name)+"/"+rest), nil
	case "$APPDATA":
		if dir := env.Getenv("APPDATA"); env.absolute(dir) {
			return env.join(dir, rest), nil
		}
		return env.join(env.Home, "AppData/Roaming/"+rest), nil
	}
	return "", sandbox.Errorf(sandbox.Internal, "place %q begins with an unknown directory", place)
}

func (env Environment) join(dir, rest string) string {
	if env.OS == "windows" {
		return strings.TrimRight(dir, `\/`) + `\` + strings.ReplaceAll(rest, "/", `\`)
	}
	return strings.TrimRight(dir, "/") + "/" + rest
}

// absolute reports whether dir is absolute. Variables with relative paths are
// ignored, as the XDG specification requires.
func (env Environment) absolute(dir string) bool {
	if env.OS == "windows" {
		return len(dir) > 2 && dir[1] == ':' || strings.HasPrefix(dir, `\\`)
	}
	return strings.HasPrefix(dir, "/")
}

// Find returns the client of that name. The error is of kind Invalid and lists
// the valid names.
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
		"use one of %s; for another client, see the configuration in glovebox mcp --help", strings.Join(names, ", "))
}

// resolve follows links, so that the target file is changed and the link stays.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is a link to a file that is not there", path),
				"make that file, or remove the link")
		}
		return path, nil
	}
	return real, err
}

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Environment variables of servers that Glovebox replaces. They apply only with
// the profile of that server. They override the file, and Glovebox's own
// variables override them.

// CodeRunner applies the settings of mcp-code-runner. getenv returns variables
// of the environment and the .env file.
func (c *Config) CodeRunner(getenv func(string) string) error {
	own := func(name string) bool { return getenv(name) != "" }
	if v := getenv("MCP_HTTP_ADDR"); v != "" && !own("GLOVEBOX_LISTEN") {
		c.Server.Listen = v
	}
	if v := getenv("PUBLIC_BASE_URL"); v != "" && !own("GLOVEBOX_PUBLIC_URL") {
		c.Server.PublicURL = v
	}
	if v := getenv("MCP_API_TOKEN"); v != "" && !own("GLOVEBOX_TOKEN") && !own("GLOVEBOX_TOKEN_FILE") {
		if len(v) < minToken {
			return invalid("MCP_API_TOKEN", fmt.Sprintf("has %d characters, but needs at least %d", len(v), minToken),
				"make a longer one with: openssl rand -hex 32")
		}
		c.Server.Token = v
		// mcp-code-runner accepted any name in the Host header. The check
		// protects against web pages in a browser, which cannot get the token.
		if !own("GLOVEBOX_ALLOW_HOSTS") && len(c.Server.AllowHosts) == 0 {
			c.Server.AllowHosts = []string{"*"}
		}
	}
	if v := getenv("SANDBOX_ROOT"); v != "" {
		dir, err := filepath.Abs(v)
		if err != nil {
			return invalid("SANDBOX_ROOT", fmt.Sprintf("%q is not a path: %v", v, err), "write the complete path, from / or a drive")
		}
		c.Workspace.Dir, c.Docker.Inside = dir, dir
	}
	if v := getenv("SANDBOX_HOST_PATH"); v != "" {
		c.Docker.Outside = v
	}
	if v := getenv("FILE_SECRET"); v != "" {
		if len(v) < minFileSecret {
			return invalid("FILE_SECRET", fmt.Sprintf("has %d characters, but needs at least %d", len(v), minFileSecret),
				"make a longer one with: openssl rand -base64 32")
		}
		c.Workspace.Secret = v
		// All conversations belong to one principal, and mcp-code-runner had no
		// limit on them together.
		c.Workspace.TotalSize, c.Workspace.TotalFiles = 0, 0
	}
	return nil
}

// minFileSecret is the length that mcp-code-runner's documentation asks for.
const minFileSecret = 32

// InterpreterType applies the driver of INTERPRETER_TYPE, a setting of the MCP
// Code Sandbox Server. known are the names of drivers.
func (c *Config) InterpreterType(getenv func(string) string, known []string) error {
	if c.E2B.Key == "" {
		c.E2B.Key = getenv("E2B_API_KEY")
	}
	v := getenv("INTERPRETER_TYPE")
	if v == "" || getenv("GLOVEBOX_DRIVER") != "" {
		return nil
	}
	for _, name := range append(known, DriverAuto) {
		if v == name {
			c.Driver = v
			return nil
		}
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "INTERPRETER_TYPE: there is no interpreter %q", v),
		"use one of %s", strings.Join(append([]string{DriverAuto}, known...), ", "))
}

// maxDotEnv is the maximum size of a .env file, in bytes.
const maxDotEnv = 64 << 10

// DotEnv returns a function that looks up getenv first and then the .env file of
// a directory. A missing file is not an error. The error wraps
// [sandbox.Invalid].
func DotEnv(dir string, getenv func(string) string) (func(string) string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read .env: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(".env")
	if errors.Is(err, fs.ErrNotExist) {
		return getenv, nil
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read .env: %w", err)
	}
	if info.Size() > maxDotEnv || !info.Mode().IsRegular() {
		return nil, sandbox.Errorf(sandbox.Invalid, "read .env: it must be a file of at most %d bytes", maxDotEnv)
	}
	text, err := root.ReadFile(".env")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read .env: %w", err)
	}
	values, err := parseDotEnv(string(text))
	if err != nil {
		return nil, err
	}
	return func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return values[name]
	}, nil
}

// parseDotEnv parses NAME=value lines in the syntax that shells and dotenv
// libraries share. A line may begin with export. A value is plain, in single
// quotes or in double quotes. parseDotEnv expands nothing and runs nothing.
func parseDotEnv(text string) (map[string]string, error) {
	values := map[string]string{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t'\"") {
			return nil, sandbox.Errorf(sandbox.Invalid, "read .env: line %d is not NAME=value", number)
		}
		value, ok = unquote(strings.TrimSpace(value))
		if !ok {
			return nil, sandbox.Errorf(sandbox.Invalid, "read .env: line %d: a quote has no end", number)
		}
		values[name] = value
	}
	return values, nil
}

// unquote removes the quotes of a value and a comment after it.
func unquote(value string) (_ string, ok bool) {
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		inner, rest, ok := strings.Cut(value[1:], value[:1])
		rest = strings.TrimSpace(rest)
		return inner, ok && (rest == "" || rest[0] == '#')
	}
	if value != "" && value[0] == '#' {
		return "", true
	}
	if i := strings.Index(value, " #"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	return value, true
}

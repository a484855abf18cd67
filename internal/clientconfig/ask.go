package clientconfig

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxAsk bounds a client's own list command. Clients start each server
// for it, and some check for updates first.
const maxAsk = 2 * time.Minute

// escapes are the escape sequences by which programs colour their output.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// Ask runs the client's own command that lists its servers, and returns the line
// about the server of that name. Without such a command, it returns the file that
// has the server. The error is the reason why the client does not reach the server.
func (c Client) Ask(ctx context.Context, env Environment, scope Scope, name string) (string, error) {
	if c.ByHand() {
		return "", sandbox.Errorf(sandbox.Unsupported, "its settings are in no file; look in the client")
	}
	path, err := c.Path(env, scope)
	if err != nil {
		return "", err
	}
	switch has, err := c.Has(env, scope, name); {
	case err != nil:
		return "", err
	case !has:
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%s has no %s", path, name), "run glovebox install %s", c.Name)
	}
	command := c.check
	if len(command) == 0 || !env.InPath(command[0]) {
		return "in " + path + "; the client was not asked", nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // a command of our table
	// Clients also start the servers that the project of their directory names.
	// Its commands may be a stranger's, so ask elsewhere unless it is asked for.
	cmd.Dir, cmd.WaitDelay = env.Home, time.Second
	if scope == Project {
		cmd.Dir = env.Project
	}
	out, err := cmd.CombinedOutput()
	text := strings.Join(command, " ")
	if ctx.Err() != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "%s did not end within %s", text, maxAsk)
	}
	if err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "%s: %w: %.200q", text, err, out)
	}
	line := lineOf(string(out), name)
	if line == "" {
		return "", sandbox.Errorf(sandbox.Unavailable, "%s does not list it: %.200q", text, out)
	}
	for _, bad := range []string{"Failed", "failed", "Disconnected", "disconnected", "✗", "error"} {
		if strings.Contains(line, bad) {
			return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s: %s", text, line), "run glovebox doctor")
		}
	}
	return line, nil
}

// lineOf returns the first line of a terminal's output that has the word name,
// without escape sequences and other control characters.
func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		line = strings.Map(printable, strings.TrimSpace(escapes.ReplaceAllString(line, "")))
		if slices.Contains(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t:│|", r) }), name) {
			return line
		}
	}
	return ""
}

// printable maps control characters to nothing, for [strings.Map]: a server that
// is listed could otherwise command the terminal.
func printable(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return -1
}

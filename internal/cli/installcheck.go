package cli

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxClientCheck bounds a client's own list command. Clients start each server
// for it, and some check for updates first.
const maxClientCheck = 2 * time.Minute

// escapes are the escape sequences by which programs colour their output.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// checkClients reports for each client whether its configuration has Glovebox,
// and runs the client's own list command where there is one. Without names, it
// checks the installed clients. The error is of kind Unavailable if a client
// lacks Glovebox or cannot reach it.
func (p *program) checkClients(ctx context.Context, env clientconfig.Environment, names []string, flags installFlags) error {
	clients, err := findClients(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		clients = slices.DeleteFunc(clientconfig.Clients(), func(c clientconfig.Client) bool { return c.ByHand() || !c.Installed(env) })
	}
	if len(clients) == 0 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "no MCP client was found on this machine"), "name one: %s", clientNames())
	}
	failed := 0
	for _, c := range clients {
		report, err := askClient(ctx, env, c, flags)
		if err != nil {
			failed++
			report = err.Error()
			if hint := sandbox.HintOf(err); hint != "" {
				report += "; " + hint
			}
		}
		if err := p.print("%s: %s\n", c.Title, report); err != nil {
			return err
		}
	}
	if failed > 0 {
		return sandbox.Errorf(sandbox.Unavailable, "%d of %d clients do not have a working %s", failed, len(clients), flags.name)
	}
	return nil
}

// askClient returns the client's own line about Glovebox, or the file that has
// it. The error is the reason why the client does not reach Glovebox.
func askClient(ctx context.Context, env clientconfig.Environment, c clientconfig.Client, flags installFlags) (string, error) {
	if c.ByHand() {
		return "", sandbox.Errorf(sandbox.Unsupported, "its settings are in no file; look in the client")
	}
	path, err := c.Path(env, flags.scope())
	if err != nil {
		return "", err
	}
	switch has, err := c.Has(env, flags.scope(), flags.name); {
	case err != nil:
		return "", err
	case !has:
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "%s has no %s", path, flags.name), "run glovebox install %s", c.Name)
	}
	command := c.ListCommand()
	if len(command) == 0 || !env.InPath(command[0]) {
		return "in " + path + "; the client was not asked", nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxClientCheck)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // a command of our table
	cmd.Dir, cmd.WaitDelay = env.Project, time.Second
	out, err := cmd.CombinedOutput()
	text := strings.Join(command, " ")
	if ctx.Err() != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "%s did not end within %s", text, maxClientCheck)
	}
	if err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "%s: %w: %.200q", text, err, out)
	}
	line := lineOf(string(out), flags.name)
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
// without escape sequences.
func lineOf(text, name string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(escapes.ReplaceAllString(line, ""))
		if slices.Contains(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t:│|", r) }), name) {
			return line
		}
	}
	return ""
}

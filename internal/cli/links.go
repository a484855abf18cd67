package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/config"
)

// The profiles that have special flags, names or settings here.
const (
	profileAutomata    = "automata"
	profileInterpreter = "interpreter"
	profileCodeRunner  = "code-runner"
	profileE2B         = "e2b"
)

// expand returns the arguments to run with. If name is the name of a program
// that Glovebox replaces, because of a link, the result acts like that program.
// It also translates that program's flags if its profile is selected.
func expand(name string, args []string, getenv func(string) string) []string {
	switch strings.TrimSuffix(filepath.Base(name), ".exe") {
	case "code-sandbox-mcp":
		return automataArgs(args)
	case "mcp-code-sandbox", "mcp-server":
		return append([]string{"serve", "--profile", profileCodeRunner}, args...)
	case "mcp-docker-interpreter":
		return append([]string{"mcp", "--profile", profileInterpreter}, args...)
	}
	if len(args) > 0 && args[0] == "mcp" {
		if rest, profile := cutProfile(args[1:], getenv); profile == profileAutomata {
			return automataArgs(rest)
		}
	}
	return args
}

// cutProfile returns the profile that the arguments or the environment name, and
// the other arguments.
func cutProfile(args []string, getenv func(string) string) (rest []string, profile string) {
	profile = getenv(config.EnvProfile)
	for i := 0; i < len(args); i++ {
		value, ok := strings.CutPrefix(args[i], "--profile=")
		switch {
		case ok:
			profile = value
		case args[i] == "--profile" && i+1 < len(args):
			profile = args[i+1]
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, profile
}

// automataArgs translates the flags of code-sandbox-mcp, which may have one dash
// or two. Other flags are Glovebox's.
func automataArgs(args []string) []string {
	transport, port := "stdio", "9520"
	install := false
	var rest []string
	for i := 0; i < len(args); i++ {
		flag := args[i]
		if strings.HasPrefix(flag, "-") {
			flag = "-" + strings.TrimLeft(flag, "-")
		}
		flag, value, given := strings.Cut(flag, "=")
		next := func() string {
			if !given && i+1 < len(args) {
				i++
				return args[i]
			}
			return value
		}
		switch flag {
		case "-no-update": // Glovebox updates only on request
		case "-install":
			install = value != "false"
		case "-transport":
			transport = next()
		case "-port":
			port = next()
		default:
			rest = append(rest, args[i])
		}
	}
	switch {
	case install:
		return []string{"install", "claude-desktop", "--", "--profile", profileAutomata}
	case transport == "sse":
		rest = slices.Concat([]string{"serve", "--profile", profileAutomata, "--listen", "127.0.0.1:" + port}, rest)
	case transport == "stdio":
		rest = slices.Concat([]string{"mcp", "--profile", profileAutomata}, rest)
	default:
		// The command refuses an unknown transport.
		rest = slices.Concat([]string{"mcp", "--profile", profileAutomata, "--transport", transport}, rest)
	}
	return rest
}

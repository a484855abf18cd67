package engine

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the parts of a request. Arguments and environment are passed to
// execve, which takes at most 128 KiB in one string. With the rest, they stay
// well below the guest's bound for one request.
const (
	maxCode      = 8 << 20
	maxStdin     = 16 << 20
	maxInput     = 1 << 20
	maxText      = 128<<10 - 1
	maxTexts     = 2 << 20 // arguments and environment together
	maxArgs      = 4096
	maxCommands  = 64
	maxEnv       = 512
	maxEnvName   = 256
	maxName      = 128
	maxImage     = 512
	maxPath      = 4095
	maxDepth     = 64
	maxTerminal  = 4096
	maxOutput    = 16 << 20
	maxReadBytes = 16 << 20

	maxLabels     = 64
	maxLabelsSize = 16 << 10
)

func invalid(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

func checkPrincipal(p sandbox.Principal) error {
	if p == "" {
		return sandbox.Errorf(sandbox.Unauthenticated, "who is asking is not known")
	}
	return nil
}

// checkText checks a text that becomes an argument or a variable of the
// environment.
func checkText(arg, s string) error {
	switch {
	case len(s) > maxText:
		return sandbox.WithHint(invalid("%s: %d bytes are more than the %d that a program can be given in one argument", arg, len(s), maxText),
			"write it to a file and pass the path")
	case strings.ContainsRune(s, 0):
		return sandbox.WithHint(invalid("%s: has a NUL byte, which no argument can have", arg), "remove it, or write the data to a file")
	case !utf8.ValidString(s):
		return sandbox.WithHint(invalid("%s: is not UTF-8", arg), "write the data to a file and pass the path")
	}
	return nil
}

// checkEnv checks an environment. Its errors never contain a value, which may
// be a secret.
func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return invalid("env: %d variables are more than %d", len(env), maxEnv)
	}
	for name, value := range env {
		if !isEnvName(name) {
			return sandbox.WithHint(invalid("env: %s is not a name of a variable", shorten(name)),
				"use letters, digits and underscores, not beginning with a digit")
		}
		if err := checkText("env: "+name, value); err != nil {
			return err
		}
	}
	return nil
}

func isEnvName(name string) bool {
	if name == "" || len(name) > maxEnvName || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && r != '_' && (r < '0' || r > '9')
	})
}

// checkPath checks a path in a sandbox, which may be relative to the working
// directory.
func checkPath(arg, path string) error {
	switch {
	case path == "":
		return invalid("%s: is empty", arg)
	case len(path) > maxPath:
		return invalid("%s: %d bytes are more than the %d that a path can have", arg, len(path), maxPath)
	case strings.ContainsRune(path, 0):
		return sandbox.WithHint(invalid("%s: has a NUL byte, which no path can have", arg), "remove it")
	}
	return nil
}

// absolute makes a checked path absolute. It does not clean the path, because
// only the sandbox knows where ".." leads after a symbolic link.
func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return sandbox.WorkDir + "/" + path
}

// checkCreate checks a request for a sandbox, and returns its limits with the
// defaults filled in.
func (e *Engine) checkCreate(req *sandbox.CreateRequest) (sandbox.Limits, error) {
	none := sandbox.Limits{}
	if len(req.Name) > maxName || !utf8.ValidString(req.Name) || strings.ContainsFunc(req.Name, unicode.IsControl) {
		return none, sandbox.WithHint(invalid("name: %s is not a name", shorten(req.Name)),
			"use up to %d bytes without control characters", maxName)
	}
	if req.Image == "" { // if the driver has that; see defaultImage
		req.Image = sandbox.ImageHost
	}
	if len(req.Image) > maxImage || !utf8.ValidString(req.Image) ||
		strings.ContainsFunc(req.Image, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return none, sandbox.WithHint(invalid("image: %s is not an image", shorten(req.Image)),
			"use %q or a reference such as debian:stable-slim", sandbox.ImageHost)
	}
	if err := e.checkWorkspace(req.Workspace); err != nil {
		return none, err
	}
	if err := checkWritable(req.Writable); err != nil {
		return none, err
	}
	network, err := e.checkNetwork(req.Network)
	if err != nil {
		return none, err
	}
	req.Network = network
	if err := checkEnv(req.Env); err != nil {
		return none, err
	}
	if textSize(nil, req.Env) > maxTexts {
		return none, tooMuchText()
	}
	if err := checkLabels(req.Labels); err != nil {
		return none, err
	}
	limits := req.Limits.Or(e.opts.Defaults)
	if req.TTL != 0 && req.Limits.Idle == 0 {
		limits.Idle = limits.Lifetime
		if most := e.opts.Maxima.Idle; most != 0 {
			limits.Idle = min(limits.Idle, most)
		}
	}
	if err := limits.Check(e.opts.Maxima); err != nil {
		return none, err
	}
	return limits, e.checkEnd(req, limits)
}

// maxWritable bounds the number of writable directories in a request.
const maxWritable = 4

// checkWritable checks the directories that are to be created in a box. Each
// must be directly below the root, so that none contains another, and must not
// be a system directory.
func checkWritable(dirs []string) error {
	if len(dirs) > maxWritable {
		return invalid("writable: %d directories are more than %d", len(dirs), maxWritable)
	}
	for i, dir := range dirs {
		name, ok := strings.CutPrefix(dir, "/")
		plain := !strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
		if !ok || name == "" || len(name) > maxName || !plain || slices.Contains(dirs[:i], dir) || slices.Contains(systemDirs, dir) {
			return sandbox.WithHint(invalid("writable: %s is not a directory that can be made", shorten(dir)), "use one like /app")
		}
	}
	return nil
}

// systemDirs are the directories below the root that are in use already.
var systemDirs = []string{sandbox.WorkDir, "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var"}

// checkEnd checks the end that a request sets for its sandbox.
func (e *Engine) checkEnd(req *sandbox.CreateRequest, limits sandbox.Limits) error {
	if req.TTL != 0 {
		if err := checkTTL(req.TTL, limits.Lifetime); err != nil {
			return err
		}
	}
	switch req.AtEnd {
	case "", sandbox.AtEndStop:
		return nil
	case sandbox.AtEndHibernate:
		if !e.drv.Info().Features.Pause {
			return e.cannotHibernate()
		}
		return nil
	}
	return invalid("at_end: %s is not what can become of a sandbox", shorten(string(req.AtEnd)))
}

// checkTTL checks a sandbox's remaining time ttl. left is the rest of its
// lifetime.
func checkTTL(ttl, left time.Duration) error {
	if ttl < sandbox.MinIdle {
		return invalid("timeout: %v is below the least, %v", ttl, sandbox.MinIdle)
	}
	if ttl > left {
		return sandbox.WithHint(invalid("timeout: %v is more than the %v that the sandbox's lifetime leaves", ttl, left.Round(time.Second)),
			"ask for less, or ask the operator to raise the lifetime of sandboxes")
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("labels: %d are more than %d", len(labels), maxLabels)
	}
	size := 0
	for name, value := range labels {
		size += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return invalid("labels: %s is not UTF-8", shorten(name))
		}
	}
	if size > maxLabelsSize {
		return invalid("labels: %d bytes are more than %d", size, maxLabelsSize)
	}
	return nil
}

// checkWorkspace checks that a sandbox can have a workspace of that name.
func (e *Engine) checkWorkspace(name string) error {
	if name == "" {
		return nil
	}
	if err := checkWorkspaceName(name); err != nil {
		return err
	}
	if e.opts.Workspaces == nil || !e.features.Workspace && !e.features.WorkspaceCopied {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "workspace: driver %s cannot mount one", e.name),
			"leave the workspace out, or use another driver: glovebox doctor lists them")
	}
	return nil
}

// checkNetwork returns the requested policy in canonical form, or the default
// one. It fails if the operator does not allow the policy.
func (e *Engine) checkNetwork(asked sandbox.Network) (sandbox.Network, error) {
	n, err := sandbox.ParseNetwork(string(asked))
	if err != nil {
		return "", err
	}
	if n == "" {
		n = e.opts.Network
	}
	if err := n.Within(e.opts.MaxNetwork); err != nil {
		return "", err
	}
	if n != sandbox.NetworkNone && !e.features.Network {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: driver %s cannot enforce %s", e.name, shorten(string(n))),
			"use %q, or another driver: glovebox doctor lists them", sandbox.NetworkNone)
	}
	return n, nil
}

func textSize(args []string, env map[string]string) int {
	n := 0
	for _, a := range args {
		n += len(a) + 1
	}
	for name, value := range env {
		n += len(name) + len(value) + 2
	}
	return n
}

func tooMuchText() error {
	return sandbox.WithHint(invalid("arguments and environment together are more than %s", sandbox.FormatBytes(maxTexts)),
		"write long data to files and pass the paths")
}

// checkRun checks a request for a run, and fills in its defaults.
func (e *Engine) checkRun(req *sandbox.RunRequest) error {
	if err := checkProgram(req); err != nil {
		return err
	}
	if err := checkContext(req); err != nil {
		return err
	}
	if req.Dir != "" { // else the guest starts it in the working directory
		if err := checkPath("cwd", req.Dir); err != nil {
			return err
		}
		if !utf8.ValidString(req.Dir) {
			return invalid("cwd: is not UTF-8")
		}
		req.Dir = absolute(req.Dir)
	}
	if err := checkEnv(req.Env); err != nil {
		return err
	}
	if len(req.Stdin) > maxStdin {
		return sandbox.WithHint(invalid("stdin: %d bytes are more than %d", len(req.Stdin), maxStdin),
			"write the data to a file and read it from there")
	}
	if p := req.PTY; p != nil {
		if err := checkTerminal(*p); err != nil {
			return err
		}
	}
	if req.Timeout == 0 {
		req.Timeout = e.opts.RunTimeout
	}
	if err := e.checkTimeout(req.Timeout); err != nil {
		return err
	}
	req.Timeout = max(req.Timeout, time.Millisecond)
	return nil
}

// checkTimeout checks the timeout of a program.
func (e *Engine) checkTimeout(d time.Duration) error {
	if d < 0 || d > e.opts.MaxRunTimeout {
		return sandbox.WithHint(invalid("timeout: %v is not between 0 and the most this server allows, %v", d, e.opts.MaxRunTimeout),
			"ask for less, or start the work in the background and look at it later")
	}
	return nil
}

// checkProgram checks that exactly one of code, commands and argv is given, and
// that it is valid.
func checkProgram(req *sandbox.RunRequest) error {
	given := 0
	for _, is := range []bool{req.Code != "", len(req.Commands) > 0, len(req.Argv) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		return sandbox.WithHint(invalid("code, command: there must be exactly one thing to run, and here are %d", given),
			"give code that is not empty, or a command, or an argument vector")
	}
	if req.Code == "" && (req.Language != "" || len(req.Args) > 0) {
		return invalid("language, args: belong to code, and here is a command")
	}
	if len(req.Code) > maxCode {
		return sandbox.WithHint(invalid("code: %d bytes are more than %d", len(req.Code), maxCode),
			"write data to files, and keep the program that reads it here")
	}
	if strings.ContainsRune(req.Code, 0) {
		return sandbox.WithHint(invalid("code: has a NUL byte"), "write binary data to a file")
	}
	if len(req.Commands) > maxCommands {
		return sandbox.WithHint(invalid("command: %d commands are more than %d", len(req.Commands), maxCommands), "write a script")
	}
	if len(req.Argv) > maxArgs || len(req.Args) > maxArgs {
		return invalid("args: %d arguments are more than %d", max(len(req.Argv), len(req.Args)), maxArgs)
	}
	for _, group := range []struct {
		arg   string
		texts []string
	}{{"args", req.Args}, {"command", req.Commands}, {"command", req.Argv}} {
		for _, s := range group.texts {
			if err := checkText(group.arg, s); err != nil {
				return err
			}
		}
	}
	for _, c := range req.Commands {
		if strings.TrimSpace(c) == "" {
			return invalid("command: is empty")
		}
	}
	if len(req.Argv) > 0 && req.Argv[0] == "" {
		return invalid("command: the program has no name")
	}
	return nil
}

func checkTerminal(s sandbox.TerminalSize) error {
	if s.Cols == 0 || s.Rows == 0 || s.Cols > maxTerminal || s.Rows > maxTerminal {
		return invalid("terminal size: %d by %d is not between 1 and %d", s.Cols, s.Rows, maxTerminal)
	}
	return nil
}

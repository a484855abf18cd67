package request

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on the parts of a request. Arguments and environment are passed to
// execve, which takes at most 128 KiB in one string. With the rest, they stay
// well below the guest's bound for one request.
const (
	maxCode     = 8 << 20
	maxStdin    = 16 << 20
	MaxInput    = 1 << 20
	maxText     = 128<<10 - 1
	MaxTexts    = 2 << 20 // arguments and environment together
	maxArgs     = 4096
	maxCommands = 64
	MaxEnv      = 512
	maxEnvName  = 256
	maxName     = 128
	maxImage    = 512
	MaxPath     = 4095
	MaxDepth    = 64
	maxTerminal = 4096
	MaxOutput   = 16 << 20
	MaxRead     = 16 << 20

	maxContextName   = 64
	maxWorkspaceName = 128

	maxLabels     = 64
	MaxLabelsSize = 16 << 10
)

// CheckPrincipal checks that the principal is known.
func CheckPrincipal(p sandbox.Principal) error {
	if p == "" {
		return sandbox.Errorf(sandbox.Unauthenticated, "the caller is not known")
	}
	return nil
}

// checkText checks a text that becomes an argument or a variable of the
// environment.
func checkText(arg, s string) error {
	switch {
	case len(s) > maxText:
		return sandbox.WithHint(Invalid("%s: %d bytes are more than the %d that a program can be given in one argument", arg, len(s), maxText),
			"write it to a file and pass the path")
	case strings.ContainsRune(s, 0):
		return sandbox.WithHint(Invalid("%s: has a NUL byte, which no argument can have", arg), "remove it, or write the data to a file")
	case !utf8.ValidString(s):
		return sandbox.WithHint(Invalid("%s: is not UTF-8", arg), "write the data to a file and pass the path")
	}
	return nil
}

// CheckEnv checks an environment. Its errors never contain a value, which may
// be a secret.
func CheckEnv(env map[string]string) error {
	if len(env) > MaxEnv {
		return Invalid("env: %d variables are more than %d", len(env), MaxEnv)
	}
	for name, value := range env {
		if !isEnvName(name) {
			return sandbox.WithHint(Invalid("env: %s is not a name of a variable", excerpt.Quote(name)),
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

// CheckPath checks a path in a sandbox, which may be relative to the working
// directory.
func CheckPath(arg, path string) error {
	switch {
	case path == "":
		return Invalid("%s: is empty", arg)
	case len(path) > MaxPath:
		return Invalid("%s: %d bytes are more than the %d that a path can have", arg, len(path), MaxPath)
	case strings.ContainsRune(path, 0):
		return sandbox.WithHint(Invalid("%s: has a NUL byte, which no path can have", arg), "remove it")
	}
	return nil
}

// Absolute makes a checked path absolute. It does not clean the path, because
// only the sandbox knows where ".." leads after a symbolic link.
func Absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return sandbox.WorkDir + "/" + path
}

// maxWritable bounds the number of writable directories in a request.
const maxWritable = 4

// checkWritable checks the directories that are to be created in a box. Each
// must be directly below the root, so that none contains another, and must not
// be a system directory.
func checkWritable(dirs []string) error {
	if len(dirs) > maxWritable {
		return Invalid("writable: %d directories are more than %d", len(dirs), maxWritable)
	}
	for i, dir := range dirs {
		name, ok := strings.CutPrefix(dir, "/")
		plain := !strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
		if !ok || name == "" || len(name) > maxName || !plain || slices.Contains(dirs[:i], dir) || slices.Contains(systemDirs, dir) {
			return sandbox.WithHint(Invalid("writable: %s is not a directory that can be made", excerpt.Quote(dir)), "use one like /app")
		}
	}
	return nil
}

// systemDirs are the directories below the root that are in use already.
var systemDirs = []string{sandbox.WorkDir, "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var"}

// CheckTTL checks a sandbox's remaining time.
func CheckTTL(ttl time.Duration) error {
	if ttl < sandbox.MinIdle {
		return Invalid("timeout: %v is below the least, %v", ttl, sandbox.MinIdle)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return Invalid("labels: %d are more than %d", len(labels), maxLabels)
	}
	size := 0
	for name, value := range labels {
		size += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return Invalid("labels: %s is not UTF-8", excerpt.Quote(name))
		}
	}
	if size > MaxLabelsSize {
		return Invalid("labels: %d bytes are more than %d", size, MaxLabelsSize)
	}
	return nil
}

// TextSize returns the size of arguments and an environment for execve.
func TextSize(args []string, env map[string]string) int {
	n := 0
	for _, a := range args {
		n += len(a) + 1
	}
	for name, value := range env {
		n += len(name) + len(value) + 2
	}
	return n
}

// TooMuchText is the error for a TextSize above [MaxTexts].
func TooMuchText() error {
	return sandbox.WithHint(Invalid("arguments and environment together are more than %s", sandbox.FormatBytes(MaxTexts)),
		"write long data to files and pass the paths")
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
		return sandbox.WithHint(Invalid("code, command: there must be exactly one thing to run, and here are %d", given),
			"give code that is not empty, or a command, or an argument vector")
	}
	if req.Code == "" && (req.Language != "" || len(req.Args) > 0) {
		return Invalid("language, args: belong to code, and here is a command")
	}
	if len(req.Code) > maxCode {
		return sandbox.WithHint(Invalid("code: %d bytes are more than %d", len(req.Code), maxCode),
			"write data to files, and keep the program that reads it here")
	}
	if strings.ContainsRune(req.Code, 0) {
		return sandbox.WithHint(Invalid("code: has a NUL byte"), "write binary data to a file")
	}
	if len(req.Commands) > maxCommands {
		return sandbox.WithHint(Invalid("command: %d commands are more than %d", len(req.Commands), maxCommands), "write a script")
	}
	if len(req.Argv) > maxArgs || len(req.Args) > maxArgs {
		return Invalid("args: %d arguments are more than %d", max(len(req.Argv), len(req.Args)), maxArgs)
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
			return Invalid("command: is empty")
		}
	}
	if len(req.Argv) > 0 && req.Argv[0] == "" {
		return Invalid("command: the program has no name")
	}
	return nil
}

// CheckTerminal checks the size of a terminal.
func CheckTerminal(s sandbox.TerminalSize) error {
	if s.Cols == 0 || s.Rows == 0 || s.Cols > maxTerminal || s.Rows > maxTerminal {
		return Invalid("terminal size: %d by %d is not between 1 and %d", s.Cols, s.Rows, maxTerminal)
	}
	return nil
}

// CheckContextName checks the name of a context.
func CheckContextName(name string) error {
	bad := name == "" || len(name) > maxContextName || strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
	if bad {
		return sandbox.WithHint(Invalid("context: %s is not a name of a context", excerpt.Quote(name)),
			"use up to %d letters, digits, dots, dashes and underscores", maxContextName)
	}
	return nil
}

// checkContext checks a request for a run in a context.
func checkContext(req *sandbox.RunRequest) error {
	if req.Context == "" {
		if req.Restart {
			return Invalid("restart: belongs to a context, and this is a program of its own")
		}
		return nil
	}
	if req.Code == "" {
		return Invalid("context: belongs to code, and here is a command")
	}
	for _, c := range []struct {
		arg   string
		given bool
	}{{"args", len(req.Args) > 0}, {"cwd", req.Dir != ""}, {"root", req.Root}, {"terminal", req.PTY != nil}} {
		if c.given {
			return sandbox.WithHint(Invalid("%s: a context has none of its own for each run", c.arg),
				"leave it out, or run the code without a context")
		}
	}
	return CheckContextName(req.Context)
}

// CheckWorkspaceName checks a name that a principal gives a workspace.
func CheckWorkspaceName(name string) error {
	if name == "" || len(name) > maxWorkspaceName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return sandbox.WithHint(Invalid("workspace: %s is not a name of a workspace", excerpt.Quote(name)),
			"use up to %d bytes of UTF-8 without control characters", maxWorkspaceName)
	}
	return nil
}

// Hostname derives a host name from a sandbox's name.
func Hostname(name string) string {
	h := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	h = strings.Trim(h, "-")
	h = strings.TrimRight(h[:min(len(h), 63)], "-")
	if h == "" {
		return "sandbox"
	}
	return h
}

// maxHistory bounds the length of a list of runs.
const maxHistory = 1000

// HistoryLimit returns the length of a list of runs for the limit of a request. Zero
// is the greatest length. A limit below zero is of kind Invalid.
func HistoryLimit(limit int) (int, error) {
	if limit < 0 {
		return 0, Invalid("limit: %d is negative", limit)
	}
	if limit == 0 {
		return maxHistory, nil
	}
	return min(limit, maxHistory), nil
}

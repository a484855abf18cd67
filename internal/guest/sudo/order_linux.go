package sudo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
)

// An order is a request with its accounts.
type order struct {
	process.Delegation
	caller string // the name of the caller's account
}

// kept are the variables of the caller that a program gets: those of the terminal
// and the language, of proxies, and of the authorities that the sandbox trusts.
var kept = []string{
	"TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "DISPLAY", "TZ", "LANG", "LANGUAGE", "LC_*",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	"AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS", "DENO_CERT",
}

// maxKeep bounds the names of variables to keep: each is compared with each variable.
const maxKeep = 1000

// matches reports whether a pattern names a variable. A star at its end is any rest.
func matches(pattern, name string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}

// order checks a request, and finds its accounts.
func (s *Server) order(req *request, who *peer) (*order, error) {
	target, err := s.account(cmp.Or(req.User, account.RootName))
	if err != nil {
		return nil, err
	}
	if req.Group != "" {
		of, err := account.Parse(strconv.FormatUint(uint64(target.UID), 10) + ":" + strings.TrimPrefix(req.Group, "#"))
		if err != nil {
			return nil, fmt.Errorf("unknown group %s", req.Group)
		}
		changed := *target
		changed.GID, changed.Groups = of.GID, append([]uint32{of.GID}, target.Groups...)
		target = &changed
	}
	o := &order{caller: (&account.Owners{}).User(who.uid)}
	if user, err := s.accounts.Find(account.UserName); err == nil && user.UID == who.uid {
		o.caller = user.Name
	}
	args := req.Args
	callers := variables(req.Env)
	if req.Login || req.Shell {
		shell := target.Shell
		if req.Shell && !req.Login {
			shell = cmp.Or(callers["SHELL"], shell)
		}
		args = []string{shell}
		if len(req.Args) > 0 {
			args = append(args, "-c", quote(req.Args))
		}
		if req.Login {
			o.Name = "-" + path.Base(shell)
		}
	}
	if (len(args) == 0 || args[0] == "") && !req.List {
		return nil, errors.New("no command given")
	}
	if bytes.IndexByte(req.Cwd, 0) >= 0 {
		return nil, errors.New("the name of the directory has a NUL byte")
	}
	if len(req.Keep) > maxKeep {
		return nil, fmt.Errorf("more than %d variables to keep", maxKeep)
	}
	if req.Terminal < -1 || req.Terminal > 2 {
		return nil, fmt.Errorf("stream %d cannot be a terminal", req.Terminal)
	}
	o.Account, o.Args, o.Terminal = target, args, req.Terminal
	o.Dir, o.Cwd = -1, cmp.Or(string(req.Cwd), "/")
	if req.Login {
		o.Cwd = target.Home
	}
	o.Env = environment(req, callers, variables(s.processes.Variables(target, nil)), o, who)
	return o, nil
}

// account finds an account by its name, or by "#" and a number.
func (s *Server) account(name string) (*account.Account, error) {
	if number, ok := strings.CutPrefix(name, "#"); ok {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n == 1<<32-1 { // this number means no change to the OS kernel
			return nil, fmt.Errorf("invalid user ID %s", name)
		}
		name = (&account.Owners{}).User(uint32(n))
	}
	a, err := s.accounts.Find(name)
	if err != nil {
		return nil, fmt.Errorf("unknown user %s", name)
	}
	return a, nil
}

func variables(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}

// maxCommand bounds the variable with the command, in bytes.
const maxCommand = 4096

// environment returns the environment of a program. base is the environment of a
// program that a request starts as that user.
func environment(req *request, callers, base map[string]string, o *order, who *peer) []string {
	env := make(map[string]string)
	for k, v := range base {
		env[k] = v
	}
	for k, v := range callers {
		named := func(pattern string) bool { return matches(pattern, k) }
		if req.KeepAll && (k != "HOME" || !req.SetHome && !req.Login) || slices.ContainsFunc(req.Keep, named) || slices.ContainsFunc(kept, named) {
			env[k] = v
		}
	}
	// These are about the program, whatever the caller has.
	for _, k := range []string{"PATH", "USER", "LOGNAME", "SHELL"} {
		if !slices.Contains(req.Keep, k) {
			env[k] = base[k]
		}
	}
	if req.Login {
		env["HOME"] = base["HOME"]
	}
	env["PWD"] = o.Cwd
	delete(env, "OLDPWD")
	env["SUDO_USER"] = o.caller
	env["SUDO_UID"] = strconv.FormatUint(uint64(who.uid), 10)
	env["SUDO_GID"] = strconv.FormatUint(uint64(who.gid), 10)
	env["SUDO_COMMAND"] = strings.Join(o.Args, " ")
	env["SUDO_COMMAND"] = env["SUDO_COMMAND"][:min(len(env["SUDO_COMMAND"]), maxCommand)]
	for k, v := range variables(req.Set) {
		env[k] = v
	}
	delete(env, process.MarkerName)
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// quote makes one command of a shell of a command and its arguments.
func quote(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if arg == "" {
			b.WriteString("''")
		}
		for _, c := range []byte(arg) {
			plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '$' || c >= 128
			switch {
			case c == '\n':
				b.WriteString("'\n'") // a shell drops a newline behind a backslash
				continue
			case !plain:
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

// rules is what a caller may do.
func (o *order) rules() string {
	return fmt.Sprintf("User %s may run the following commands in this sandbox:\n    (ALL : ALL) NOPASSWD: ALL\n", o.caller)
}

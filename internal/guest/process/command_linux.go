package process

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// CheckConfig refuses a command that execve cannot take.
func CheckConfig(cfg *guestapi.ProcessConfig) error {
	if cfg.Cmd == "" {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "no command given")
	}
	for _, s := range append([]string{cfg.Cmd, cfg.Cwd}, cfg.Args...) {
		if strings.IndexByte(s, 0) >= 0 {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "a command, argument or directory has a NUL byte")
		}
	}
	for k, v := range cfg.Envs {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "bad environment variable %q", k)
		}
	}
	return nil
}

// imageDir returns the image's start directory, or "" if it does not exist.
func (cfg *Config) imageDir() string {
	var st unix.Stat_t
	if dir := cfg.ImageDir; path.IsAbs(dir) && path.Clean(dir) != "/" &&
		unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return path.Clean(dir)
	}
	return ""
}

// workingDir returns the directory in which a process starts.
func workingDir(dir string, a *account.Account) (string, error) {
	if dir == "" {
		for _, d := range []string{workDir, a.Home} {
			var st unix.Stat_t
			if unix.Stat(d, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR &&
				unix.Faccessat(unix.AT_FDCWD, d, unix.X_OK, unix.AT_EACCESS) == nil {
				return d, nil
			}
		}
		return "/", nil
	}
	dir = a.Path(dir)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		if err == unix.ENOENT {
			return "", rpc.Errorf(guestapi.CodeNotFound, "working directory does not exist: %s", dir)
		}
		return "", enterError(err, dir, a)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", rpc.Errorf(guestapi.CodeInvalidArgument, "working directory is not a directory: %s", dir)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", enterError(err, dir, a)
	}
	return dir, nil
}

// enterError says why a cannot enter its working directory.
func enterError(err error, dir string, a *account.Account) error {
	if err == unix.EACCES {
		return rpc.Errorf(guestapi.CodePermissionDenied, "permission denied: user %q cannot enter the working directory %s", a.Name, dir)
	}
	return rpc.FileError(err, dir)
}

// findCommand returns the file of a command. A command with a slash is a path;
// another is looked up in the PATH of the new process.
func findCommand(cmd, cwd string, env []string) (string, error) {
	if strings.Contains(cmd, "/") {
		file := cmd
		if !path.IsAbs(file) {
			file = path.Join(cwd, file)
		}
		var st unix.Stat_t
		switch err := unix.Stat(file, &st); {
		case err == unix.ENOENT || err == unix.ENOTDIR:
			return "", rpc.Errorf(guestapi.CodeNotFound, "no such program: %s", cmd)
		case err != nil:
			return "", rpc.FileError(err, cmd)
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			return "", rpc.Errorf(guestapi.CodeInvalidArgument, "not a program but a directory: %s", cmd)
		}
		return file, nil
	}
	dirs := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	refused := false
	for dir := range strings.SplitSeq(dirs, ":") {
		if !path.IsAbs(dir) {
			dir = path.Join(cwd, dir)
		}
		file := path.Join(dir, cmd)
		var st unix.Stat_t
		if unix.Stat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if regular.MayExecute(file, &st) {
			return file, nil
		}
		refused = true
	}
	if refused {
		return "", rpc.Errorf(guestapi.CodePermissionDenied, "not executable: %s", cmd)
	}
	return "", rpc.Errorf(guestapi.CodeNotFound, "command not found: %s", cmd)
}

// execError returns the error of a program that did not start.
func execError(err error, cmd, file string) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		// findCommand found the file, so its interpreter or loader is missing.
		return rpc.Errorf(guestapi.CodeNotFound, "%s: its interpreter or loader does not exist", cmd)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return rpc.Errorf(guestapi.CodePermissionDenied, "not executable: %s", cmd)
	case errors.Is(err, unix.ENOEXEC):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s is not a program for this machine, and has no #! line", cmd)
	case errors.Is(err, unix.E2BIG):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "arguments and environment are too long")
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: %v", cmd, err)
	case errors.Is(err, unix.EAGAIN):
		return rpc.Errorf(guestapi.CodeResourceExhausted, "the limit on processes is reached")
	}
	return rpc.Exhausted("start "+file, err)
}

package gvisor

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// unavailable returns an error that wraps [driver.ErrUnavailable].
func unavailable(hint, format string, args ...any) error {
	return &sandbox.Error{
		Kind: sandbox.Unavailable,
		Err:  fmt.Errorf("%w: %w", driver.ErrUnavailable, fmt.Errorf(format, args...)),
		Hint: hint,
	}
}

// checkProgram returns an error if the driver's processes cannot be started from
// path. gVisor starts it again in an empty root, where a program would not find
// shared libraries.
func checkProgram(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return unavailable("reinstall glovebox", "read own executable: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return unavailable("install it with CGO_ENABLED=0 go install github.com/glovebox-dev/glovebox/cmd/glovebox@latest, or from a release",
				"the executable %s was built with cgo and is not static", path)
		}
	}
	return nil
}

// The switches of Linux and its distributions that can forbid user namespaces.
const (
	sysctlMaxUserNS    = "/proc/sys/user/max_user_namespaces"
	sysctlDebianUserNS = "/proc/sys/kernel/unprivileged_userns_clone"
	sysctlUbuntuUserNS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
)

func sysctl(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// explainStart adds the likely cause on this machine to an error of starting a
// process in namespaces.
func explainStart(err error) error {
	if err == nil {
		return nil
	}
	refused := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.EINVAL) || strings.Contains(err.Error(), "operation not permitted") ||
		errors.Is(err, unix.ENOSPC) && !fullDisk(err)
	if !refused {
		return fmt.Errorf("start sandbox: %w", err)
	}
	if hint := userNamespaceHint(); hint != "" {
		return unavailable(hint, "start sandbox: %w", err)
	}
	if os.Geteuid() == 0 {
		return unavailable("inside a container, run it with --privileged, or with --cap-add SYS_ADMIN --security-opt seccomp=unconfined",
			"start sandbox: this root may not make namespaces: %w", err)
	}
	return unavailable("a surrounding container's seccomp profile may forbid it: run that with --security-opt seccomp=unconfined",
		"start sandbox: this user may not make namespaces: %w", err)
}

// fullDisk reports whether the lack of space in err is on a disk. Starting a
// process fails with the same error if there are too many namespaces.
func fullDisk(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op != "fork/exec"
}

// userNamespaceHint describes the switch that forbids user namespaces here, and the
// remedy. It is empty if there is none.
func userNamespaceHint() string {
	switch {
	case sysctl(sysctlMaxUserNS) == "0":
		return "user namespaces are switched off: sudo sysctl user.max_user_namespaces=10000"
	case os.Geteuid() == 0:
		return ""
	case sysctl(sysctlDebianUserNS) == "0":
		return "user namespaces are for root only here: sudo sysctl kernel.unprivileged_userns_clone=1"
	case sysctl(sysctlUbuntuUserNS) == "1":
		return "AppArmor confines user namespaces here: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or install glovebox's AppArmor profile"
	}
	return ""
}

// probe checks the requirements of a box. It runs in the maker, whose existence
// shows that namespaces can be made.
func (m *maker) probe() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return unavailable("choose another with --state-dir", "state directory: %w", err)
	}
	if _, err := os.Stat(m.guest); err != nil {
		return unavailable("reinstall glovebox", "guest: %w", err)
	}
	makeRoot, makeGuest := m.hostRoot, m.hostGuest
	if m.userRoot != nil {
		makeRoot, makeGuest = m.userRoot, m.userGuest
	}
	if _, err := makeRoot(); err != nil {
		return unavailable("", "host image: %w", err)
	}
	if _, err := makeGuest(); err != nil {
		return unavailable("", "guest: %w", err)
	}
	return nil
}

package diagnosis

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Unavailable returns an error that wraps [driver.ErrUnavailable].
func Unavailable(hint, format string, args ...any) error {
	return &sandbox.Error{
		Kind: sandbox.Unavailable,
		Err:  fmt.Errorf("%w: %w", driver.ErrUnavailable, fmt.Errorf(format, args...)),
		Hint: hint,
	}
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

// ExplainStart adds the likely cause on this machine to an error of starting a
// process in namespaces.
func ExplainStart(err error) error {
	if err == nil {
		return nil
	}
	refused := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.EINVAL) || strings.Contains(err.Error(), "operation not permitted") ||
		errors.Is(err, unix.ENOSPC) && !fullDisk(err)
	if !refused {
		return fmt.Errorf("start sandbox: %w", err)
	}
	if hint := UserNamespaceHint(); hint != "" {
		return Unavailable(hint, "start sandbox: %w", err)
	}
	if os.Geteuid() == 0 {
		return Unavailable("inside a container, run it with --privileged, or with --cap-add SYS_ADMIN --security-opt seccomp=unconfined",
			"start sandbox: this root may not make namespaces: %w", err)
	}
	return Unavailable("a surrounding container's seccomp profile may forbid it: run that with --security-opt seccomp=unconfined",
		"start sandbox: this user may not make namespaces: %w", err)
}

// fullDisk reports whether the lack of space in err is on a disk. Starting a
// process fails with the same error if there are too many namespaces.
func fullDisk(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op != "fork/exec"
}

// UserNamespaceHint describes the switch that forbids user namespaces here, and the
// remedy. It is empty if there is none.
func UserNamespaceHint() string {
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

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// resolvConf names the DNS servers of programs.
const resolvConf = "/etc/resolv.conf"

// useResolvers sets the DNS servers of programs to a comma-separated list of
// addresses. An empty list changes nothing.
func useResolvers(addresses string) error {
	if addresses == "" {
		return nil
	}
	text, err := resolverText(addresses)
	if err != nil {
		return err
	}
	// In some images it is a link to a file that does not exist in the sandbox.
	if err := os.Remove(resolvConf); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set DNS servers: %w", err)
	}
	if err := os.WriteFile(resolvConf, []byte(text), 0o644); err != nil {
		return fmt.Errorf("set DNS servers: %w", err)
	}
	return nil
}

func resolverText(addresses string) (string, error) {
	var b strings.Builder
	for text := range strings.SplitSeq(addresses, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return "", fmt.Errorf("set DNS servers: %w", err)
		}
		fmt.Fprintf(&b, "nameserver %s\n", a)
	}
	// Queries go through a local socket, which loses none. So a query without an
	// answer was refused, and more attempts would not help.
	b.WriteString("options timeout:5 attempts:2\n")
	return b.String(), nil
}

// ownDirs makes the directories of a comma-separated list, if they are missing,
// and gives all of them to the user. It is for drivers whose image cannot have
// files of that user. owner, if not nil, is the user's account in this image.
func ownDirs(list string, owner *account.Account) error {
	if list == "" {
		return nil
	}
	uid, gid := sandbox.UserUID, sandbox.UserUID
	if owner != nil {
		uid, gid = int(owner.UID), int(owner.GID)
	}
	for dir := range strings.SplitSeq(list, ",") {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Lchown(dir, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// limitFiles bounds the open files of this process and its children, and
// disables core dumps. A stricter limit stays.
func limitFiles(n uint64) error {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	n = min(n, was.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
}

// closeOnExec sets the close-on-exec flag of every descriptor but 0, 1 and 2.
func closeOnExec() error {
	const first = 3
	err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Linux before 5.11, and system call filters, may refuse close_range.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

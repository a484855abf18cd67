package guest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A limiter reports limits. Its fields are those of [Config].
type limiter struct {
	tunnel   bool
	noTunnel string
}

// limits returns the limits that the OS kernel reports.
func (r *limiter) limits(_ *http.Request, _ *struct{}) (*guestapi.Limits, error) {
	l, err := readLimits()
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "read limits: %v", err)
	}
	l.Tunnel, l.NoTunnel = r.tunnel, r.noTunnel
	return l, nil
}

func readLimits() (*guestapi.Limits, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return nil, fmt.Errorf("statfs: %w", err)
	}
	var nproc unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &nproc); err != nil {
		return nil, fmt.Errorf("getrlimit: %w", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	l := &guestapi.Limits{
		DiskBytes: int64(st.Blocks) * st.Bsize,
		Processes: int64(min(nproc.Max, 1<<62)),
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapInh": // the capabilities that a program keeps when it is executed as another user
			l.Capabilities = value
		case "CapBnd":
			l.Bounding = value
		case "Seccomp":
			l.Seccomp, _ = strconv.Atoi(value)
		case "Threads":
			l.Group.GuestThreads, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	if l.Mounts, err = procfs.Mounts(); err != nil {
		return nil, err
	}
	procfs.ReadGroup(&l.Group)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("getrlimit: %w", err)
	}
	l.OpenFiles = int64(min(files.Max, 1<<62))
	// A mapping of the whole range to itself is no user namespace.
	uids, err := os.ReadFile("/proc/self/uid_map")
	l.UserNamespace = err == nil && strings.Join(strings.Fields(string(uids)), " ") != "0 0 4294967295"
	// Not every OS kernel shows it in the status file.
	noNewPrivs, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	l.NoNewPrivs = noNewPrivs == 1
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, i := range interfaces {
		l.Interfaces = append(l.Interfaces, i.Name)
	}
	return l, nil
}

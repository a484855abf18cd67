package users

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
)

// If root runs the server, the sentries of a state directory run as users that the
// host does not have: user N of a box is user base+N of the host. The host files
// that a box sees are on idmapped mounts, which translate the numbers back. A
// workspace's files thus keep their owners on disk.
//
// Such a mount requires CAP_SYS_ADMIN in the user namespace of its file system. The
// server has this capability and the supervisor has not, so the server makes the
// mounts.

// The numbers from which ranges are taken. systemd assigns lower numbers to
// containers, and higher numbers to files of foreign systems.
const (
	firstUser = 0x7000_0000
	endUser   = 0x7ffe_0000
	rangeSize = 1 << 20 // of a range: archives have owners above 65,535
)

// Contains reports whether a user of the host is in the range for sentries.
func Contains(uid uint64) bool { return uid >= firstUser && uid < endUser }

// A Range is the range of user numbers of a state directory.
type Range struct {
	// First is the host user that is uid 0 of a box.
	First     int
	namespace *os.File // a user namespace with the range's map
}

// Close ends the use of the range for new mounts.
func (u *Range) Close() { u.namespace.Close() }

// Map maps the users of a box to the range at base.
func Map(base int) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(base), Size: rangeSize}}
}

// New returns the users of a state directory's boxes, which the caller closes. The
// error is the reason why boxes keep the host's numbers. program is the executable
// of their sentries.
func New(stateDir, program string) (*Range, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("an ordinary user runs the server")
	}
	if fi, err := os.Stat(program); err != nil || fi.Mode()&0o005 != 0o005 {
		return nil, errors.Join(fmt.Errorf("%s is not for everybody to read and execute", program), err)
	}
	if err := checkProcessLimit(); err != nil {
		return nil, err
	}
	taken, err := takenUsers("/etc")
	if err != nil {
		return nil, err
	}
	base, err := chooseUsers(stateDir, taken)
	if err != nil {
		return nil, err
	}
	namespace, err := openUserNamespace(base)
	if err != nil {
		return nil, err
	}
	return &Range{First: base, namespace: namespace}, nil
}

// idRange is a range of user or group numbers.
type idRange struct{ first, size uint64 }

func (r idRange) overlaps(base int) bool {
	return r.first < uint64(base)+rangeSize && uint64(base) < r.first+r.size
}

// takenUsers returns the numbers that are assigned in the files of etc: in each
// line of passwd and group the third field, of subuid and subgid the second and
// third.
func takenUsers(etc string) ([]idRange, error) {
	var taken []idRange
	for name, sub := range map[string]bool{"passwd": false, "group": false, "subuid": true, "subgid": true} {
		file, err := os.Open(filepath.Join(etc, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			f := strings.Split(lines.Text(), ":")
			if len(f) < 3 {
				continue
			}
			r := idRange{size: 1}
			first := f[2]
			if sub {
				first = f[1]
				r.size, _ = strconv.ParseUint(f[2], 10, 32)
			}
			if r.first, err = strconv.ParseUint(first, 10, 32); err == nil {
				taken = append(taken, r)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return taken, nil
}

// chooseUsers returns the first number of an unassigned range. Different state
// directories get different ranges, as far as there are enough.
func chooseUsers(stateDir string, taken []idRange) (int, error) {
	const ranges = (endUser - firstUser) / rangeSize
	h := fnv.New32a()
	h.Write([]byte(filepath.Clean(stateDir)))
	start := int(h.Sum32() % ranges)
next:
	for i := range ranges {
		base := firstUser + (start+i)%ranges*rangeSize
		for _, r := range taken {
			if r.overlaps(base) {
				continue next
			}
		}
		return base, nil
	}
	return 0, fmt.Errorf("the users %d to %d are taken, by /etc/passwd, group, subuid or subgid", firstUser, endUser-1)
}

// Open is [rootfs.Open], with the owners' numbers translated for a box.
func (u *Range) Open(path string, how uint, attributes uint64) (*rootfs.Tree, error) {
	t, err := rootfs.Open(path, how, attributes)
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(u.namespace.Fd())}
	if err := unix.MountSetattr(int(t.Fd()), "", unix.AT_EMPTY_PATH|how, &attr); err != nil {
		return nil, errors.Join(&os.PathError{Op: "map users of", Path: path, Err: err}, t.Close())
	}
	return t, nil
}

// HostTrees returns read-only trees of the host's files that the image "host"
// shows: the guest first, then the system directories. The caller closes them.
func (u *Range) HostTrees(guest string) (trees []*rootfs.Tree, err error) {
	paths := []string{guest}
	for _, name := range rootfs.SystemDirs {
		if fi, err := os.Lstat("/" + name); err == nil && fi.IsDir() {
			paths = append(paths, "/"+name)
		}
	}
	for _, path := range paths {
		t, err := u.Open(path, unix.AT_RECURSIVE, rootfs.ReadOnly)
		if err != nil {
			for _, t := range trees {
				t.Close()
			}
			return nil, err
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// openUserNamespace makes a user namespace with the map of the range at base. A
// namespace needs a process: this one is stopped before its first instruction, and
// killed. The caller closes the file.
func openUserNamespace(base int) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: rangeSize}}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{message.SupervisorName}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}
	// The thread that starts the process traces it, and the process ends with that
	// thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	err = errors.Join(err, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	return file, err
}

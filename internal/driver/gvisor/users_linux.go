package gvisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
)

// If root runs the server, the sentries of a state directory run as users that the
// host does not have: user N of a box is user base+N of the host. The host files
// that a box sees are on idmapped mounts, which translate the numbers back. A
// workspace's files thus keep their owners on disk.
//
// Such a mount requires CAP_SYS_ADMIN in the user namespace of its file system. The
// server has this capability and the maker has not, so the server makes the mounts.

// The numbers from which ranges are taken. systemd assigns lower numbers to
// containers, and higher numbers to files of foreign systems.
const (
	usersFirst = 0x7000_0000
	usersEnd   = 0x7ffe_0000
	usersSize  = 1 << 20 // of a range: archives have owners above 65,535
)

// isBoxUser reports whether a user of the host is in the range for sentries.
func isBoxUser(uid uint64) bool { return uid >= usersFirst && uid < usersEnd }

// boxUsers is the range of user numbers of a state directory.
type boxUsers struct {
	base      int
	namespace *os.File // a user namespace with the range's map
}

// userMap maps the users of a box to the range at base.
func userMap(base int) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(base), Size: usersSize}}
}

// newBoxUsers returns the users of a state directory's boxes. The error is the
// reason why boxes keep the host's numbers. program is the executable of their
// sentries.
func newBoxUsers(stateDir, program string) (*boxUsers, error) {
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
	return &boxUsers{base: base, namespace: namespace}, nil
}

// idRange is a range of user or group numbers.
type idRange struct{ first, size uint64 }

func (r idRange) overlaps(base int) bool {
	return r.first < uint64(base)+usersSize && uint64(base) < r.first+r.size
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
	const ranges = (usersEnd - usersFirst) / usersSize
	h := fnv.New32a()
	h.Write([]byte(filepath.Clean(stateDir)))
	start := int(h.Sum32() % ranges)
next:
	for i := range ranges {
		base := usersFirst + (start+i)%ranges*usersSize
		for _, r := range taken {
			if r.overlaps(base) {
				continue next
			}
		}
		return base, nil
	}
	return 0, fmt.Errorf("the users %d to %d are taken, by /etc/passwd, group, subuid or subgid", usersFirst, usersEnd-1)
}

// openUserNamespace makes a user namespace with the map of the range at base. A
// namespace needs a process: this one is stopped before its first instruction, and
// killed. The caller closes the file.
func openUserNamespace(base int) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: usersSize}}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{makerName}
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

// The host kernel exempts its root from the process limit, but not other users.
// Their limit is inherited from the program that started the server, and counts the
// processes of all boxes of a maker together. So the driver lifts the maker's
// limit.

// enoughProcesses is a sufficient limit for all boxes together, if root has no
// right to lift the limit. A box at its own default limit has about 500 processes.
const enoughProcesses = 1 << 15

// checkProcessLimit returns an error if the process limit is too low and cannot be
// raised.
func checkProcessLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Max >= enoughProcesses {
		return nil
	}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return fmt.Errorf("RLIMIT_NPROC is %d, which would be that of all sandboxes, and no right is there to raise it", limit.Max)
	}
	return nil
}

// liftProcessLimit raises the limit of a process as far as this process may.
func liftProcessLimit(pid int) {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) == nil || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) // on failure, the limit stays
}

// openTree is [openTree], with the owners' numbers translated for a box.
func (u *boxUsers) openTree(path string, how uint, attributes uint64) (*tree, error) {
	t, err := openTree(path, how, attributes)
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(u.namespace.Fd())}
	if err := unix.MountSetattr(int(t.Fd()), "", unix.AT_EMPTY_PATH|how, &attr); err != nil {
		return nil, errors.Join(&os.PathError{Op: "map users of", Path: path, Err: err}, t.Close())
	}
	return t, nil
}

// hostTrees returns read-only trees of the host's files that the image "host"
// shows: the guest first, then the system directories. The caller closes them.
func (u *boxUsers) hostTrees(guest string) (trees []*tree, err error) {
	paths := []string{guest}
	for _, name := range systemDirs {
		if fi, err := os.Lstat("/" + name); err == nil && fi.IsDir() {
			paths = append(paths, "/"+name)
		}
	}
	for _, path := range paths {
		t, err := u.openTree(path, unix.AT_RECURSIVE, readOnly)
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

// openUsers returns the first user of this driver's boxes and the trees of the
// image "host", which the caller closes. If there are none, it returns 0 and stores
// the reason. The caller holds d.mu.
func (d *Driver) openUsers() (first int, trees []*tree) {
	var err error
	if d.users == nil {
		d.users, err = newBoxUsers(d.opts.StateDir, d.opts.Program)
	}
	if err == nil {
		if trees, err = d.users.hostTrees(d.opts.Guest); err == nil {
			return d.users.base, trees
		}
		d.users.namespace.Close()
		d.users = nil
	}
	d.whyHostUsers = err
	if os.Geteuid() == 0 {
		d.opts.Log.Warn("sandboxes have the host's numbers of users", "err", err)
	}
	return 0, nil
}

// create has the maker make a box, with users of its own if possible.
func (d *Driver) create(ctx context.Context, req *message.Request, streams []*os.File) (*message.Reply, error) {
	if _, err := d.running(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	users, why, closed := d.users, d.whyHostUsers, d.closed
	d.mu.Unlock()
	if closed {
		return nil, errDriverClosed()
	}
	files := slices.Clone(streams)
	if users != nil && req.Spec.Workspace != "" {
		if err := checkWorkspace(req.Spec.Workspace); err != nil {
			return nil, err
		}
		workspace, err := users.openTree(req.Spec.Workspace, 0, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
		if err != nil {
			users, why = nil, err
		} else {
			defer workspace.Close()
			files = append(files, workspace.File)
		}
	}
	if users != nil {
		req.FirstUser = users.base
	} else if os.Geteuid() == 0 {
		req.WhyHostUsers = why.Error()
	}
	return d.call(ctx, req, files...)
}

// sendAsOwner sends a signal to the process of the pidfd fd. A maker has no rights
// over the user namespace that another maker made. So a thread changes to the user
// of that process, which may send the signal, and ends.
func sendAsOwner(pid, fd int, sig unix.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	status, serr := processStatus(pid)
	uid, perr := strconv.ParseUint(status["Uid"], 10, 32)
	if serr != nil || perr != nil || !isBoxUser(uid) {
		return err
	}
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		const keep = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			errc <- os.NewSyscallError("setresuid", errno)
			return
		}
		errc <- unix.PidfdSendSignal(fd, sig, nil, 0)
	}()
	return <-errc
}

// runsAs reports whether all user IDs of a process are that user of the host.
func runsAs(pid, uid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(data), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	ids := strings.Fields(line)
	return err == nil && len(ids) == 4 && !slices.ContainsFunc(ids, func(id string) bool { return id != strconv.Itoa(uid) })
}

// identityMap maps every number in this user namespace to itself; path is the map
// of the namespace.
func identityMap(path string) ([]syscall.SysProcIDMap, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read user namespace: %w", err)
	}
	var m []syscall.SysProcIDMap
	for line := range strings.Lines(string(data)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		m = append(m, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return m, nil
}

// rootIsRoot reports whether uid 0 here is also uid 0 on the host, which means that
// root started the driver.
func rootIsRoot() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(data))
	return err == nil && len(f) >= 3 && f[0] == "0" && f[1] == "0"
}

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
)

// Where root runs the server, the sentries of a state directory run as users that
// the host does not have: user N of a box is user base+N of the host. The files of
// the host that a box sees are on mounts that translate the numbers back, so that a
// workspace's files keep theirs on disk.
//
// To make such a mount takes CAP_SYS_ADMIN in the user namespace of its file system.
// The server has it and the maker has not, so the server makes them.

// The numbers that ranges are taken from. systemd gives out those below to
// containers, and keeps those above for files of foreign systems.
const (
	usersFirst = 0x7000_0000
	usersEnd   = 0x7ffe_0000
	usersSize  = 1 << 20 // of a range: archives have owners above 65,535
)

// isBoxUser reports whether a user of the host is one that sentries run as.
func isBoxUser(uid uint64) bool { return uid >= usersFirst && uid < usersEnd }

// boxUsers is the range of a state directory.
type boxUsers struct {
	base      int
	namespace *os.File // a user namespace with the range's map
}

// userMap maps the users of a box to the range at base.
func userMap(base int) []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(base), Size: usersSize}}
}

// newBoxUsers returns the users of a state directory's boxes, or why its boxes keep
// the host's numbers; program is what their sentries execute.
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

// idRange is some numbers of users or groups.
type idRange struct{ first, size uint64 }

func (r idRange) overlaps(base int) bool {
	return r.first < uint64(base)+usersSize && uint64(base) < r.first+r.size
}

// takenUsers returns what the files in etc say is somebody's: of each line of
// passwd and group the third field, of subuid and subgid the second and third.
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

// chooseUsers returns the first number of a range that nobody has: of each state
// directory another, as far as there are some.
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
// namespace begins with a process: this one is stopped before its first instruction,
// and killed.
func openUserNamespace(base int) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: usersSize}}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{makerName}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}
	// It is traced by the thread that starts it, and ends with that.
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

// The host's kernel does not hold its root to a limit on processes. Other users it
// does, and to the limit of the program that started the server: that counts the
// processes of all boxes of a maker together. So a maker's limit is lifted.

// enoughProcesses is what all boxes may have together where root has no right to
// lift the limit. A box at its own default limit has some 500.
const enoughProcesses = 1 << 15

// checkProcessLimit reports whether there is a limit that is too low and stays.
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

// liftProcessLimit lifts the limit of a process, as far as this one may.
func liftProcessLimit(pid int) {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) == nil || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) // else it has what there is
}

// openTree is [openTree], with the numbers of owners translated for a box.
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

// hostTrees returns trees of what the image "host" shows of the host, read-only.
// The caller closes them.
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

// openUsers returns the first of the users of this driver's boxes and trees of what
// the image "host" shows, which the caller closes; or 0, and notes why. The caller
// holds d.mu.
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

// create has the maker make a box, which has users of its own where that works.
func (d *Driver) create(ctx context.Context, req *request, streams []*os.File) (*reply, error) {
	if _, err := d.running(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	users, why := d.users, d.whyHostUsers
	d.mu.Unlock()
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

// sendAsOwner sends a signal to the process that fd holds. A maker has no power over
// the user namespaces that another maker made: a thread of it does as that process's
// user what its root may not, and ends.
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
		runtime.LockOSThread() // and never unlocked
		const keep = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			errc <- os.NewSyscallError("setresuid", errno)
			return
		}
		errc <- unix.PidfdSendSignal(fd, sig, nil, 0)
	}()
	return <-errc
}

// runsAs reports whether a process is that user of the host in all respects.
func runsAs(pid, uid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(data), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	ids := strings.Fields(line)
	return err == nil && len(ids) == 4 && !slices.ContainsFunc(ids, func(id string) bool { return id != strconv.Itoa(uid) })
}

// identityMap maps every number that exists in this user namespace, of which
// path is the map, to itself.
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

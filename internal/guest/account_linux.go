package guest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// The accounts of every sandbox, even if /etc/passwd does not have them.
const (
	userName = "user"
	rootName = "root"
	userID   = 1000
)

// maxAccountFile bounds the bytes read from /etc/passwd and /etc/group, which
// the sandbox can change.
const maxAccountFile = 1 << 20

// An account is a user of the sandbox.
type account struct {
	name        string
	uid, gid    uint32
	groups      []uint32 // gid is the first
	home, shell string
}

// accounts caches accounts until one of their files changes. Every call needs an
// account.
type accounts struct {
	mu    sync.Mutex
	files [2]fileState        // of /etc/passwd and /etc/group
	known map[string]*account // accounts in it do not change
}

// maxAccounts bounds the cached accounts.
const maxAccounts = 64

// fileState changes whenever the file changes.
type fileState struct {
	dev, ino uint64
	size     int64
	changed  unix.Timespec
}

func stateOf(path string) fileState {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileState{}
	}
	return fileState{st.Dev, st.Ino, st.Size, st.Ctim}
}

// account returns the account of that name. An empty name is "user".
func (g *Guest) account(name string) (*account, error) {
	if name == "" {
		name = userName
	}
	c := &g.accounts
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [2]fileState{stateOf("/etc/passwd"), stateOf("/etc/group")}
	if now != c.files || c.known == nil || len(c.known) >= maxAccounts {
		c.files, c.known = now, make(map[string]*account)
	}
	if a := c.known[name]; a != nil {
		return a, nil
	}
	a, err := g.readAccount(name)
	if err == nil {
		c.known[name] = a
	}
	return a, err
}

func (g *Guest) readAccount(name string) (*account, error) {
	var a *account
	if name == userName {
		var err error
		if a, err = imageAccount(g.cfg.ImageUser); err != nil {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "%v", err)
		}
	}
	if a == nil {
		a = passwd(func(n string, _ uint32) bool { return n == name })
	}
	if a == nil || name == userName && a.uid == 0 { // the user is never root
		a = &account{name: name}
		switch name {
		case userName:
			a.uid, a.gid, a.home = userID, userID, "/home/user"
		case rootName:
			a.home = "/root"
		default:
			var err error
			if a, err = accountOf(name); err != nil {
				return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no such user: %s", name)
			}
		}
	}
	if g.cfg.WorkDir != "" {
		a.home = g.cfg.WorkDir
	}
	if a.home == "" {
		a.home = "/"
	}
	if a.shell == "" {
		a.shell = "/bin/sh"
		if isExecutable("/bin/bash") {
			a.shell = "/bin/bash"
		}
	}
	if g.cfg.AsSelf { // whatever the name is
		a.uid, a.gid = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	a.groups = []uint32{a.gid}
	eachLine("/etc/group", func(line string) bool {
		f := strings.Split(line, ":") // name:password:gid:members
		if len(f) != 4 || !slices.Contains(strings.Split(f[3], ","), a.name) {
			return true
		}
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil && !slices.Contains(a.groups, uint32(gid)) {
			a.groups = append(a.groups, uint32(gid))
		}
		return len(a.groups) < 64
	})
	return a, nil
}

// passwd returns the first account that matches, or nil.
func passwd(matches func(name string, uid uint32) bool) (a *account) {
	eachLine("/etc/passwd", func(line string) bool {
		// name:password:uid:gid:comment:home:shell
		f := strings.Split(line, ":")
		if len(f) != 7 {
			return true
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil || !matches(f[0], uint32(uid)) {
			return true
		}
		a = &account{name: f[0], uid: uint32(uid), gid: uint32(gid), home: f[5], shell: f[6]}
		return false
	})
	return a
}

// imageAccount returns the account that an image names; see accountOf. It is nil
// if the image names no user, or root. Root is the default of images whose
// makers did not choose a user, and no reason to give programs root's rights.
func imageAccount(says string) (*account, error) {
	if user, _, _ := strings.Cut(says, ":"); user == "" {
		return nil, nil
	}
	a, err := accountOf(says)
	if err != nil {
		return nil, fmt.Errorf("the image's %w", err)
	}
	if a.uid == 0 {
		return nil, nil
	}
	return a, nil
}

// accountOf returns the account of a user, given as a name or a number, or as
// user:group. A number need not be in /etc/passwd.
func accountOf(says string) (*account, error) {
	user, group, _ := strings.Cut(says, ":")
	number, err := strconv.ParseUint(user, 10, 32)
	a := passwd(func(name string, uid uint32) bool {
		return name == user || err == nil && uid == uint32(number)
	})
	switch {
	case a == nil && user == rootName:
		a = &account{name: rootName, home: "/root"}
	case a == nil && err != nil:
		return nil, fmt.Errorf("user, %q, is not in its /etc/passwd", user)
	case a == nil:
		a = &account{name: user, uid: uint32(number)}
	}
	if group != "" {
		gid, err := groupID(group)
		if err != nil {
			return nil, fmt.Errorf("group, %w", err)
		}
		a.gid = gid
	}
	return a, nil
}

// groupID returns the number of a group, given as a name or a number.
func groupID(group string) (uint32, error) {
	if n, err := strconv.ParseUint(group, 10, 32); err == nil {
		return uint32(n), nil
	}
	gid, found := uint64(0), false
	eachLine("/etc/group", func(line string) bool {
		if f := strings.Split(line, ":"); len(f) == 4 && f[0] == group {
			var err error
			gid, err = strconv.ParseUint(f[2], 10, 32)
			found = err == nil
			return !found
		}
		return true
	})
	if !found {
		return 0, fmt.Errorf("%q, is not in its /etc/group", group)
	}
	return uint32(gid), nil
}

// eachLine calls f with each line of a file until f returns false. A file that
// cannot be read has no lines; accounts then have their fixed numbers.
func eachLine(path string, f func(line string) bool) {
	file, err := openRegular(path)
	if err != nil {
		return
	}
	defer file.Close()
	read := 0
	s := bufio.NewScanner(file)
	for s.Scan() {
		read += len(s.Bytes()) + 1
		if read > maxAccountFile || !f(s.Text()) {
			return
		}
	}
}

// names maps the ids of a file such as /etc/passwd to their names.
type names map[uint32]string

func readNames(path string) names {
	m := names{}
	eachLine(path, func(line string) bool {
		f := strings.SplitN(line, ":", 4)
		if len(f) < 4 {
			return true
		}
		if id, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			if _, ok := m[uint32(id)]; !ok {
				m[uint32(id)] = f[0]
			}
		}
		return len(m) < 4096
	})
	return m
}

func (m names) of(id uint32) string {
	if name, ok := m[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// errIdentity is the error of a thread that could not switch its user.
var errIdentity = errors.New("switch user")

// as runs f with the rights of a: its user, its groups, no capabilities. Only
// the calling thread changes, so f must make its system calls in its own
// goroutine.
//
// The effective ids change, and not only those for files, because gVisor has no
// setfsuid. The real and saved ids stay root's. So the thread can switch back,
// and the user's programs can neither signal nor trace it.
func (g *Guest) as(a *account, f func() error) error {
	if g.cfg.AsSelf || a.uid == 0 {
		return f()
	}
	runtime.LockOSThread()
	if err := become(a.uid, a.gid, a.groups); err != nil {
		// Do not unlock the thread: its identity is unknown, so it must not run
		// other goroutines. It ends with this goroutine.
		return lockedError(err)
	}
	err := f()
	if back := become(0, 0, nil); back != nil {
		return lockedError(back)
	}
	runtime.UnlockOSThread()
	return err
}

// lockedError returns the error of a thread whose identity is wrong. The thread
// stays locked to the goroutine, and ends with it.
func lockedError(err error) error {
	return rpc.Errorf(guestapi.CodeInternal, "%v: %v", errIdentity, err)
}

// become sets the calling thread's effective user, group and supplementary
// groups. Setting groups needs root's capabilities. So they are set before
// leaving root, and after regaining it.
func become(uid, gid uint32, groups []uint32) error {
	const keep = ^uintptr(0)
	setUser := func() error { return raw(unix.SYS_SETRESUID, keep, uintptr(uid), keep) }
	setGroups := func() error {
		var p unsafe.Pointer
		if len(groups) > 0 {
			p = unsafe.Pointer(&groups[0])
		}
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0)
		if errno != 0 {
			return os.NewSyscallError("setgroups", errno)
		}
		return raw(unix.SYS_SETRESGID, keep, uintptr(gid), keep)
	}
	if uid == 0 {
		if err := setUser(); err != nil {
			return err
		}
		return setGroups()
	}
	if err := setGroups(); err != nil {
		return err
	}
	return setUser()
}

// raw makes a system call on this thread only. The functions of package syscall
// would change every thread.
func raw(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return os.NewSyscallError("setresid", errno)
	}
	return nil
}

package account

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Config is the configuration of the accounts of a guest. Package guest
// describes its fields.
type Config struct {
	AsSelf    bool
	WorkDir   string
	ImageUser string
}

// Accounts finds accounts, and caches them until one of their files changes.
// Every call needs an account.
type Accounts struct {
	cfg Config

	mu    sync.Mutex
	files [2]fileState        // of /etc/passwd and /etc/group
	known map[string]*Account // accounts in it do not change
}

// New returns the accounts of a guest.
func New(cfg Config) *Accounts { return &Accounts{cfg: cfg} }

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

// Find returns the account of that name. An empty name is "user".
func (c *Accounts) Find(name string) (*Account, error) {
	if name == "" {
		name = UserName
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [2]fileState{stateOf("/etc/passwd"), stateOf("/etc/group")}
	if now != c.files || c.known == nil || len(c.known) >= maxAccounts {
		c.files, c.known = now, make(map[string]*Account)
	}
	if a := c.known[name]; a != nil {
		return a, nil
	}
	a, err := c.read(name)
	if err == nil {
		c.known[name] = a
	}
	return a, err
}

func (c *Accounts) read(name string) (*Account, error) {
	var a *Account
	if name == UserName {
		var err error
		if a, err = OfImage(c.cfg.ImageUser); err != nil {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "%v", err)
		}
	}
	if a == nil {
		a = passwd(func(n string, _ uint32) bool { return n == name })
	}
	if a == nil || name == UserName && a.UID == 0 { // the user is never root
		a = &Account{Name: name}
		switch name {
		case UserName:
			a.UID, a.GID, a.Home = UserID, UserID, "/home/user"
		case RootName:
			a.Home = "/root"
		default:
			var err error
			if a, err = Parse(name); err != nil {
				return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no such user: %s", name)
			}
		}
	}
	if c.cfg.WorkDir != "" {
		a.Home = c.cfg.WorkDir
	}
	if a.Home == "" {
		a.Home = "/"
	}
	if a.Shell == "" {
		a.Shell = "/bin/sh"
		if regular.IsExecutable("/bin/bash") {
			a.Shell = "/bin/bash"
		}
	}
	if c.cfg.AsSelf { // whatever the name is
		a.UID, a.GID = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	a.Groups = []uint32{a.GID}
	eachLine("/etc/group", func(line string) bool {
		f := strings.Split(line, ":") // name:password:gid:members
		if len(f) != 4 || !slices.Contains(strings.Split(f[3], ","), a.Name) {
			return true
		}
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil && !slices.Contains(a.Groups, uint32(gid)) {
			a.Groups = append(a.Groups, uint32(gid))
		}
		return len(a.Groups) < 64
	})
	return a, nil
}

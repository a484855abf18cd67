package account

import (
	"path"
	"strings"
	"syscall"
)

// The accounts of every sandbox, even if /etc/passwd does not have them.
const (
	UserName = "user"
	RootName = "root"
	UserID   = 1000
)

// An Account is a user of the sandbox. It does not change.
type Account struct {
	Name        string
	UID, GID    uint32
	Groups      []uint32 // GID is the first
	Home, Shell string
}

// Credential returns the identity of a process of a.
func (a *Account) Credential() *syscall.Credential {
	return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}
}

// Path makes a path absolute and clean, without looking at the disk. A relative
// path begins at the user's home, and so does "~".
func (a *Account) Path(name string) string {
	if name == "~" {
		name = a.Home
	} else if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = path.Join(a.Home, rest)
	}
	if !path.IsAbs(name) {
		name = path.Join(a.Home, name)
	}
	return path.Clean(name)
}

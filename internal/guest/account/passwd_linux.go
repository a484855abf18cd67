package account

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/guest/regular"
)

// maxAccountFile bounds the bytes read from /etc/passwd and /etc/group, which
// the sandbox can change.
const maxAccountFile = 1 << 20

// passwd returns the first account that matches, or nil.
func passwd(matches func(name string, uid uint32) bool) (found *Account) {
	eachLine("/etc/passwd", func(line string) bool {
		if a := parseEntry(line); a != nil && matches(a.Name, a.UID) {
			found = a
		}
		return found == nil
	})
	return found
}

// parseEntry parses a line of /etc/passwd. It returns nil for a broken line: a
// number that cannot be read must not become root's.
func parseEntry(line string) *Account {
	f := strings.Split(line, ":") // name:password:uid:gid:comment:home:shell
	if len(f) != 7 {
		return nil
	}
	uid, err1 := strconv.ParseUint(f[2], 10, 32)
	gid, err2 := strconv.ParseUint(f[3], 10, 32)
	if err1 != nil || err2 != nil {
		return nil
	}
	return &Account{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5], Shell: f[6]}
}

// OfImage returns the account that an image names; see [Parse]. It is nil
// if the image names no user, or root. Root is the default of images whose
// makers did not choose a user, and no reason to give programs root's rights.
func OfImage(says string) (*Account, error) {
	if user, _, _ := strings.Cut(says, ":"); user == "" {
		return nil, nil
	}
	a, err := Parse(says)
	if err != nil {
		return nil, fmt.Errorf("the image's %w", err)
	}
	if a.UID == 0 {
		return nil, nil
	}
	return a, nil
}

// Parse returns the account of a user, given as a name or a number, or as
// user:group. A number need not be in /etc/passwd.
func Parse(says string) (*Account, error) {
	user, group, _ := strings.Cut(says, ":")
	number, err := strconv.ParseUint(user, 10, 32)
	a := passwd(func(name string, uid uint32) bool {
		return name == user || err == nil && uid == uint32(number)
	})
	switch {
	case a == nil && user == RootName:
		a = &Account{Name: RootName, Home: "/root"}
	case a == nil && err != nil:
		return nil, fmt.Errorf("user, %q, is not in its /etc/passwd", user)
	case a == nil:
		a = &Account{Name: user, UID: uint32(number)}
	}
	if group != "" {
		gid, err := groupID(group)
		if err != nil {
			return nil, fmt.Errorf("group, %w", err)
		}
		a.GID = gid
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
	file, err := regular.Open(path)
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

package account

import (
	"strconv"
	"strings"
)

// An Owners maps ids to names, by account files that it reads when needed.
type Owners struct{ users, groups names }

// User returns the name of a user, or the number if there is no name.
func (o *Owners) User(id uint32) string {
	if o.users == nil {
		o.users = readNames("/etc/passwd")
	}
	return o.users.of(id)
}

// Group returns the name of a group, or the number if there is no name.
func (o *Owners) Group(id uint32) string {
	if o.groups == nil {
		o.groups = readNames("/etc/group")
	}
	return o.groups.of(id)
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

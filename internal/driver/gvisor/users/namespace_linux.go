package users

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

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

// SupervisorAttributes returns attributes that put the supervisor into a new
// session, so that a terminal's signals do not reach it. They also give the
// supervisor a new mount namespace and a new user namespace, in which it is root.
// In an ordinary user's namespace, that user is the only one. In root's namespace,
// all users have the same numbers as outside. But the supervisor has no rights over
// resources of the machine outside that namespace, so the sentry runs without the
// machine's privileges.
func SupervisorAttributes() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER}
	if os.Geteuid() != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		return attr, nil
	}
	var err error
	if attr.UidMappings, err = identityMap("/proc/self/uid_map"); err != nil {
		return nil, err
	}
	if attr.GidMappings, err = identityMap("/proc/self/gid_map"); err != nil {
		return nil, err
	}
	attr.GidMappingsEnableSetgroups = true
	return attr, nil
}

// RootIsRoot reports whether uid 0 here is also uid 0 on the host, which means that
// root started the driver.
func RootIsRoot() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(data))
	return err == nil && len(f) >= 3 && f[0] == "0" && f[1] == "0"
}

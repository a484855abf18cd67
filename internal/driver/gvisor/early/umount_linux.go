package early

import "syscall"

// umount is gVisor's command of that name, which takes /proc away from the
// sentry when that goes on without: it unmounts dir when a byte can be read from the
// descriptor in flag. It returns the exit status.
func umount(flag, dir string) int {
	const prefix = "--sync-fd="
	if len(flag) != len(prefix)+1 || flag[:len(prefix)] != prefix {
		return 2
	}
	sync := int(flag[len(prefix)] - '0')
	if sync < 3 || sync > 9 {
		return 2
	}
	CloseInherited(map[int]bool{sync: true})
	var b [1]byte
	n, err := syscall.Read(sync, b[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(sync, b[:])
	}
	if err != nil || n != 1 {
		return 1
	}
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		return 1
	}
	return 0
}

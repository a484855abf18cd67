package drivertest

import "syscall"

// hostInotify checks that this machine can add an inotify watch.
func hostInotify() error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.InotifyAddWatch(fd, "/", syscall.IN_CREATE)
	return err
}

// Package rootfs has the files that a box sees: detached trees of mounts, the image
// "host" and the directory of the guest.
//
// A [Tree] exists while a process has it open. The server and the supervisor open
// trees; the supervisor hands them to sentries. The driver, its supervisor and
// package users import this package. It keeps no state.
package rootfs

package network

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// The calls of the lists that arm64 has by another name.
var (
	allowedHere []uint32
	missingHere = []uint32{unix.SYS_FSTATAT}
)

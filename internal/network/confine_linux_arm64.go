package network

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// The calls that have another name on arm64.
var (
	allowedHere []uint32
	missingHere = []uint32{unix.SYS_FSTATAT}
)

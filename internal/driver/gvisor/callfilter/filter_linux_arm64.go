package callfilter

import "golang.org/x/sys/unix"

// nativeArch is the architecture of calls by the numbers that the filter knows.
const nativeArch = unix.AUDIT_ARCH_AARCH64

// foreignNumbers: arm64 has no second numbers for its calls.
const foreignNumbers = 0

// oldModeArguments: arm64 has none of the older calls.
var oldModeArguments map[uint32]uint32

func refusedRequests() []refusedRequest { return nil }

package gvisor

// oldModeArguments: arm64 has none of the older calls.
var oldModeArguments map[uint32]uint32

func refusedRequests() []refusedRequest { return nil }

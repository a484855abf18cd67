package sandbox

import "time"

// A Load is what a sandbox uses at a moment.
type Load struct {
	// CPU is the CPU time since the sandbox began.
	CPU time.Duration
	// MemoryBytes is the memory in use; 0 is not known.
	MemoryBytes int64
}

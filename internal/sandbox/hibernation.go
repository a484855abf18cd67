package sandbox

import "time"

// A Hibernation describes the saved state of a sandbox, or why there is none.
type Hibernation struct {
	// Saved is when the state was saved on the disk. It is zero while the sandbox
	// runs, and while it hibernates in memory.
	Saved time.Time `json:"saved_at,omitzero"`
	// Bytes is the size of the state, and Build the hash of the executable that can
	// wake the sandbox.
	Bytes int64  `json:"bytes,omitempty"`
	Build string `json:"build,omitempty"`
	// Error says why the last attempt to save or to wake the sandbox failed, and
	// Failed when that was. An attempt that succeeds clears both.
	Error  string    `json:"error,omitempty"`
	Failed time.Time `json:"failed_at,omitzero"`
}

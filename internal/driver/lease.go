package driver

import (
	"context"
	"time"
)

// A Lease bounds the life of a detached box that no process holds.
type Lease struct {
	// End is when the box ends at the latest.
	End time.Time `json:"end"`
	// Idle is how long the box stays after its last holder left. Busy extends that
	// time: before it, the box ends only because of End.
	Idle time.Duration `json:"idle"`
	Busy time.Time     `json:"busy"`
}

// After returns when a box ends whose last holder left at that time.
func (l Lease) After(left time.Time) time.Time {
	at := left.Add(l.Idle)
	if at.Before(l.Busy) {
		at = l.Busy
	}
	if l.End.Before(at) {
		at = l.End
	}
	return at
}

// A Leaser is a detached box that ends by itself when no process holds it. A paused
// box may end only after it was resumed.
type Leaser interface {
	// SetLease makes the calling process the holder of the box until that process
	// ends or its driver is closed (a box may notice that a minute later), or until another process calls SetLease. From
	// then on, and unless another process is the holder, the lease bounds the life
	// of the box. A box without a lease does not end by itself. While a process
	// holds the box, the lease ends nothing. The driver removes all of an ended box,
	// or leaves an object without processes and memory for List and Discard.
	// It may leave the box to the reaper of another process that uses the driver in
	// the same state directory.
	SetLease(ctx context.Context, l Lease) error
}

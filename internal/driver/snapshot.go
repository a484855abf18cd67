package driver

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Snapshotter is a box of which its driver can keep snapshots: its memory, its
// processes and the files outside of the workspace, at one moment.
type Snapshotter interface {
	// Snapshot keeps the state of the running box as the snapshot id, and the box goes
	// on. All streams to the guest end, and so do the box's connections through its
	// network, in the box and in the snapshot. The snapshot stays until RemoveSnapshot,
	// also when the box has ended. When Snapshot has returned, it outlives a loss of
	// power. After an error there is no snapshot, and the box runs on.
	//
	// The error is of kind [sandbox.Unsupported] if there can be no snapshot of this
	// box, and of kind [sandbox.Conflict] if there cannot now, or if the snapshot
	// exists.
	Snapshot(ctx context.Context, id string) (Snapshot, error)
}

// A Rollbacker is a box that can return to a snapshot with memory.
type Rollbacker interface {
	Saver
	Snapshotter
	// Rollback gives the box the state of a snapshot, of this box or of another one of
	// the same order. What the box did since is lost, except in its workspace. The box
	// keeps its reference, its network policy and its counts. All streams end. After an
	// error the box runs on as before, unless the error wraps [ErrGone].
	Rollback(ctx context.Context, id string) error
}

// A DiskSnapshotter is a box of which its driver can keep snapshots without memory: the
// files that programs changed, except those of the workspace and of file systems that
// the box has in memory anyway, such as /dev/shm.
type DiskSnapshotter interface {
	// SnapshotDisk keeps the files of the running box as the snapshot id. Programs go
	// on meanwhile, so files that they are writing may be of different moments. After an
	// error there is no snapshot, and the box runs on. The kinds of errors are those of
	// [Snapshotter]; a file that became shorter while it was read is a Conflict.
	SnapshotDisk(ctx context.Context, id string) (Snapshot, error)
}

// A Snapshot describes a snapshot that a driver has just made.
type Snapshot struct {
	Bytes int64 `json:"bytes"` // on the disk; 0 if the driver is not told
	// Build is as in [Saved].
	Build string `json:"build,omitempty"`
	// Stood is how long the programs of the box stood still. It is 0 for a snapshot
	// without memory, and if the driver is not told.
	Stood time.Duration `json:"stood"`
}

// A SnapshotKeeper is a driver that keeps snapshots of its boxes. The identifiers of
// snapshots are the caller's; [sandbox.ValidID] accepts them.
type SnapshotKeeper interface {
	// CreateFrom is Create with the state of a snapshot. From a snapshot without memory,
	// the box starts afresh with the snapshot's files. The box has an identity of its
	// own: its ID, its hostname, its limits on the host and its network. The spec's
	// image, and its limits except memory and times, must be those of the box that the
	// snapshot was made of, and it must have a workspace and a network if that box had
	// one. The error is of kind [sandbox.Unavailable] otherwise, or if the snapshot
	// does not fit this program, machine or workspace, and of kind [sandbox.NotFound]
	// if there is no such snapshot. Programs can see that they were cloned: the file
	// guestapi.GenerationFile has changed before any caller can reach the box.
	CreateFrom(ctx context.Context, spec *Spec, snapshot string) (Box, error)
	// Snapshots returns the identifiers of all snapshots in the driver's state
	// directory, also of incomplete ones.
	Snapshots(ctx context.Context) ([]string, error)
	// RemoveSnapshot removes a snapshot. It has no effect if there is none. Boxes that
	// were made from it run on.
	RemoveSnapshot(ctx context.Context, id string) error
}

func noSnapshots(b Box) error {
	if _, disk := as[DiskSnapshotter](b); disk {
		return filesOnly()
	}
	return keepsNone()
}

func filesOnly() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver keeps no memory of programs, only files"),
		"say that files are enough: glovebox snapshot create --disk, glovebox fork --disk, or \"memory\": false in E2B's API")
}

// NoMemory returns nil if d keeps snapshots with memory, and otherwise the error, of kind
// [sandbox.Unsupported], of each request for one.
func NoMemory(d Driver) error {
	if _, err := Snapshots(d); err != nil {
		return err
	}
	if !d.Info().Features.Snapshot {
		return filesOnly()
	}
	return nil
}

func keepsNone() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver keeps no snapshots of sandboxes"),
		"copy the files out, or use the driver gvisor")
}

// TakeSnapshot keeps the state of b as a snapshot. The error wraps
// [sandbox.Unsupported] if its driver cannot.
func TakeSnapshot(ctx context.Context, b Box, id string) (Snapshot, error) {
	s, ok := as[Snapshotter](b)
	if !ok {
		return Snapshot{}, noSnapshots(b)
	}
	return s.Snapshot(ctx, id)
}

// TakeDiskSnapshot keeps the files of b as a snapshot without memory. The error wraps
// [sandbox.Unsupported] if its driver cannot.
func TakeDiskSnapshot(ctx context.Context, b Box, id string) (Snapshot, error) {
	s, ok := as[DiskSnapshotter](b)
	if !ok {
		if _, memory := as[Snapshotter](b); memory {
			return Snapshot{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver keeps no snapshots without memory"), "take one with memory")
		}
		return Snapshot{}, keepsNone()
	}
	return s.SnapshotDisk(ctx, id)
}

// Rollback gives b the state of a snapshot. The error wraps [sandbox.Unsupported] if
// its driver cannot.
func Rollback(ctx context.Context, b Box, id string) error {
	if r, ok := as[Rollbacker](b); ok {
		return r.Rollback(ctx, id)
	}
	if _, memory := as[Snapshotter](b); memory {
		return noWayBack()
	}
	if _, disk := as[DiskSnapshotter](b); disk {
		return NoRollback()
	}
	return keepsNone()
}

// CanRollback returns nil if boxes of d can return to a snapshot with memory, and
// otherwise the error, of kind [sandbox.Unsupported], of each request for that.
func CanRollback(d Driver) error {
	if err := NoMemory(d); err != nil {
		return err
	}
	if !d.Info().Features.Rollback {
		return noWayBack()
	}
	return nil
}

func noWayBack() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver cannot return a sandbox to a snapshot"),
		"make another sandbox of the snapshot, and stop this one")
}

// NoRollback returns the error, of kind [sandbox.Unsupported], of a rollback to a
// snapshot without memory.
func NoRollback() error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a snapshot without memory has no programs to go back to, so a rollback would end those of the sandbox"),
		"make another sandbox of the snapshot, and stop this one")
}

// Snapshots returns the part of d, or of the driver that it wraps, that keeps
// snapshots. The error wraps [sandbox.Unsupported] if there is none.
func Snapshots(d Driver) (SnapshotKeeper, error) {
	if k, ok := Ability[SnapshotKeeper](d); ok && (d.Info().Features.Snapshot || d.Info().Features.DiskSnapshot) {
		return k, nil
	}
	return nil, keepsNone()
}

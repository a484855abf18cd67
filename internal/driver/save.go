package driver

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Saver is a box whose state can be saved on disk: its memory, its processes and
// the files outside of the workspace.
type Saver interface {
	Pauser
	// Save puts the state of the box on the disk of the driver's state directory,
	// and ends all its processes, so that the box uses no memory. All streams end,
	// and so do the box's connections through its network. Resume, also by a later
	// process, makes the box go on where it stood. Until then Ref, Attach, List,
	// Discard and Destroy work as for any box, Pause has no effect, and the other
	// methods answer as far as they need no process. Saving a saved box has no
	// effect.
	//
	// A state whose Save returned outlives a loss of power, unless the box is
	// attached. After an error the box runs on, except that its streams may have
	// ended. The error is of kind [sandbox.Unsupported] if this box can never be
	// saved, and of kind [sandbox.Conflict] if it cannot now.
	//
	// If Resume of a saved box fails, the box is still saved, unless the error wraps
	// [ErrGone]. The error is of kind [sandbox.Unavailable] if the state does not fit
	// this program, machine or workspace any more, or is damaged.
	Save(ctx context.Context) (Saved, error)
}

// A Packer is a Saver whose saved state can be made smaller.
type Packer interface {
	Saver
	// Pack compresses the saved state of the box, and returns its bytes on the disk.
	// Packing a packed state has no effect. The box can be used meanwhile as before: a
	// use wins, and Pack then ends with an error of kind [sandbox.Conflict], as it does
	// for a box that is not saved. After any error the state is as it was, or packed.
	Pack(ctx context.Context) (int64, error)
}

// Pack compresses the saved state of b. The error wraps [sandbox.Unsupported] if the
// driver cannot do that.
func Pack(ctx context.Context, b Box) (int64, error) {
	p, ok := as[Packer](b)
	if !ok {
		return 0, sandbox.Errorf(sandbox.Unsupported, "this driver cannot compress a saved state")
	}
	return p.Pack(ctx)
}

// Saved describes the saved state of a box.
type Saved struct {
	Bytes int64 `json:"bytes"` // on the disk
	// Build is the hash of the executable that can resume the box.
	Build string `json:"build,omitempty"`
	// Stood is how long the programs stood still until the state was complete.
	Stood time.Duration `json:"stood"`
}

// Save saves b on disk. The error wraps [sandbox.Unsupported] if it cannot be saved.
func Save(ctx context.Context, b Box) (Saved, error) {
	s, ok := as[Saver](b)
	if !ok {
		return Saved{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this driver cannot save a sandbox on disk"),
			"leave it in memory, or use the driver gvisor")
	}
	return s.Save(ctx)
}

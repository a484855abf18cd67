package image

import (
	"errors"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// explainWrite adds the kind and a hint to an error of a write to the store if
// the disk is full.
func explainWrite(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the disk is full: %w", err),
			"free space, for example with glovebox images prune, and try again")
	}
	return err
}

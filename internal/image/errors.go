package image

import (
	"errors"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// explainWrite gives an error of writing to the store its kind, and where the
// disk is full, a remedy.
func explainWrite(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the disk is full: %w", err),
			"make space, with glovebox images prune for one, and try again")
	}
	return err
}

package guestapi

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathCloned begins another generation of a sandbox. It is ours, beyond E2B's protocol.
const PathCloned = "/cloned"

// GenerationFile changes in a box whose state a snapshot gave it. Its first line is the
// count of such changes, and its second line is random. It does not exist before the
// first.
const GenerationFile = "/run/glovebox/generation"

// Cloned tells the guest that a snapshot gave it its state: it changes
// [GenerationFile], and tells interpreters, which draw other random numbers from then
// on.
func (c *Client) Cloned(ctx context.Context) error {
	return c.call(ctx, "begin generation", PathCloned, sandbox.Root, struct{}{}, nil)
}

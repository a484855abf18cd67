package engine

import (
	"context"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// This file connects a sandbox to its workspace.

// ID returns the identifier of the sandbox.
func (b *liveSandbox) ID() string { return b.id }

// unmount ends a sandbox's use of its workspace.
func (b *liveSandbox) unmount() { b.mount.Unmount(b) }

// Unnamed lists the unlinked files of the workspace that programs in the sandbox
// have open. It lists none while no program runs in the sandbox yet.
func (b *liveSandbox) Unnamed(ctx context.Context) ([]driver.UnnamedFile, error) {
	select {
	case <-b.ready:
	default:
		return nil, nil
	}
	files, _, err := driver.ReadUnnamed(ctx, b.drv)
	return files, err
}

// endCopy copies the changes of a sandbox that is about to end. If it fails, it
// adds to the reason how old the last copy is. A hibernated sandbox was copied
// before.
func (b *liveSandbox) endCopy(ctx context.Context, why verdict.Reason) verdict.Reason {
	b.mu.Lock()
	hibernates := b.rec.State == sandbox.Hibernated
	b.mu.Unlock()
	if hibernates {
		b.copy.Abandon()
		return why
	}
	note := b.copy.Last(ctx, b.wake)
	if note == "" {
		return why
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.HasSuffix(why.Cause, note) {
		why.Cause += note
	}
	if b.why != nil {
		b.why = &why
	}
	return why
}

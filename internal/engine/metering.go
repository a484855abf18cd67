package engine

import (
	"maps"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/engine/account"
)

// metered returns the box of the sandbox, which has started.
func (b *liveSandbox) metered() account.Box {
	return account.Box{ID: b.id, Box: b.drv, Traffic: b.traffic}
}

// metered returns the boxes of this process that exist. A stop counts its box itself.
func (e *Engine) metered() (boxes []account.Box) {
	e.mu.Lock()
	live := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	for _, b := range live {
		if !b.started() {
			continue
		}
		b.mu.Lock()
		if b.livesLocked() {
			boxes = append(boxes, b.metered())
		}
		b.mu.Unlock()
	}
	return boxes
}

package e2b

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// statePaused is the control plane's state of a paused sandbox.
const statePaused = "paused"

// pollPaused is how often waiting requests poll the state of a paused box:
// another client may resume it.
const pollPaused = 500 * time.Millisecond

var _ driver.Pauser = (*Box)(nil)

// Pause implements [driver.Pauser]. E2B saves the memory to disk, which takes
// seconds, and closes the connections to the sandbox. A paused sandbox costs
// nothing and has no timeout. If this process dies, the sandbox stays until a
// later process of the state directory finds it by its label.
func (b *Box) Pause(ctx context.Context) error {
	if b.resting() == nil {
		b.rest() // requests wait from here on instead of failing
	}
	err := b.d.control.Pause(ctx, b.id)
	if err != nil {
		b.wake()
	}
	return sandbox.Wrap(b.noticed(err), "pause box", b.id)
}

// Resume implements [driver.Pauser].
func (b *Box) Resume(ctx context.Context) error {
	s, err := b.d.control.Connect(ctx, b.id, b.ttl)
	if err != nil {
		return sandbox.Wrap(b.noticed(err), "resume box", b.id)
	}
	b.admit(s)
	b.wake()
	return nil
}

// resting returns a channel that is closed at the box's resume, or nil if the
// box runs.
func (b *Box) resting() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paused
}

func (b *Box) rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused == nil {
		b.paused = make(chan struct{})
	}
}

func (b *Box) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused != nil {
		close(b.paused)
		b.paused = nil
	}
}

// awake waits until this process or another client has resumed the box.
func (b *Box) awake(ctx context.Context) error {
	for {
		resumed := b.resting()
		if resumed == nil {
			return nil
		}
		select {
		case <-resumed:
			continue
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return b.errGone()
		case <-time.After(pollPaused):
		}
		s, err := b.d.control.Get(ctx, b.id)
		switch {
		case driver.IsGone(err):
			return b.noticed(err)
		case err == nil && s.State != statePaused && b.resting() == resumed:
			b.wake()
		}
	}
}

package engine

import (
	"context"
	"net"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// dialGuest returns the guest of the sandbox. A call that finds the box gone
// stops the sandbox, and fails with the error for a stopped sandbox: another
// process may have stopped it, or it died.
func (b *liveSandbox) dialGuest() guestlink.Guest {
	return b.e.opts.dialGuest(guestBox{b.drv, b})
}

// A guestBox is the box to which the client of a guest connects.
type guestBox struct {
	driver.Box
	of *liveSandbox
}

func (g guestBox) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := g.Box.Dial(ctx)
	if !driver.IsGone(err) {
		return conn, err
	}
	return nil, g.of.gone(err)
}

// gone stops the sandbox because its box is gone, as err says. It returns the
// error for a stopped sandbox, or err if the sandbox does not live yet or any
// more.
func (b *liveSandbox) gone(err error) error {
	b.Lost()
	b.mu.Lock()
	defer b.mu.Unlock()
	if stopped := b.stoppedLocked(); stopped != nil {
		return goneError{stopped}
	}
	return err
}

// A goneError is the error for a stopped sandbox whose box is gone. It counts as
// [driver.ErrGone], but not as its kind: callers must not take it for a missing
// file or program.
type goneError struct{ error }

func (e goneError) Unwrap() error { return e.error }

func (e goneError) Is(target error) bool { return target == driver.ErrGone }

// Check returns a principal's sandbox as Get does, after it has asked the driver
// whether the box still lives. The error wraps [sandbox.Conflict] if it does not.
func (e *Engine) Check(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	b, rec, err := e.find(ctx, p, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, "get sandbox", "")
	}
	if b == nil {
		return verdict.WithExpiry(rec.Sandbox), nil
	}
	probe, cancel := context.WithTimeout(ctx, run.EndTimeout)
	defer cancel()
	if b.started() && b.Dead(probe) {
		b.Lost()
	}
	b.mu.Lock()
	stopped := b.stoppedLocked()
	b.mu.Unlock()
	if stopped != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(stopped, "get sandbox", "")
	}
	return b.view(), nil
}

package engine

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// wakeGrace is the time that a program has to listen after its sandbox was
	// resumed. A server of Python or Node starts in less.
	wakeGrace = 3 * time.Second
	// wakePoll is the pause between two attempts to connect in that time.
	wakePoll = 50 * time.Millisecond
)

// DialPort connects to a server on a port of a sandbox's loopback addresses,
// whatever the sandbox's network is. ctx bounds only the dial. The connection
// also has CloseWrite, but no deadlines. The caller must close it; the sandbox
// is in use until then. The data that it carries is untrusted.
//
// The error is of kind Invalid for an impossible port, and Unavailable if no
// server listens; if the sandbox was just resumed, DialPort waits up to three
// seconds for one. It is of kind Exhausted if there are too many connections,
// Conflict if the sandbox has stopped, and Unsupported if the driver cannot
// connect. DialPort wakes a hibernated sandbox. A later hibernation cuts the
// connection.
func (e *Engine) DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error) {
	const op = "connect to port"
	if port < 1 || port > 65535 {
		return nil, sandbox.Wrap(request.Invalid("port: %d is not between 1 and 65535", port), op, "")
	}
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	conn, err := b.dialPort(ctx, port)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	return conn, nil
}

func (b *liveSandbox) dialPort(ctx context.Context, port int) (net.Conn, error) {
	release, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &forward{cancel: cancel, done: make(chan struct{})}
	if err := b.addPort(f); err != nil {
		cancel()
		release()
		return nil, err
	}
	end := sync.OnceFunc(func() {
		cancel()
		b.mu.Lock()
		b.forwards.Delete(f)
		b.ports--
		b.mu.Unlock()
		release()
		close(f.done)
	})
	stop := context.AfterFunc(ctx, cancel) // ctx ends the dial, not the open connection
	conn, err := b.dialGuestPort(life, port)
	if !stop() && err == nil {
		conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		err = b.Explain(ctx, err)
		end()
		if errors.Is(err, sandbox.Unavailable) && sandbox.HintOf(err) == "" {
			err = sandbox.WithHint(err, "start the program that is to listen there, at 127.0.0.1 or 0.0.0.0, and let it run")
		}
		return nil, err
	}
	held := &heldConn{HalfCloser: conn, release: end}
	context.AfterFunc(life, func() { held.Close() })
	return held, nil
}

// dialGuestPort connects to a port in the guest. It tries a refused connection
// again for wakeGrace after the sandbox was resumed: a program that a run left
// in the background may have been paused before it listened.
func (b *liveSandbox) dialGuestPort(ctx context.Context, port int) (guestlink.HalfCloser, error) {
	for {
		conn, err := b.guest.DialPort(ctx, port)
		if !errors.Is(err, sandbox.Unavailable) || driver.IsGone(err) || !b.wokeSince(wakeGrace) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wakePoll):
		}
	}
}

func (b *liveSandbox) addPort(f *forward) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports >= guestapi.MaxPortConns {
		return request.TooManyConnections(b.ports)
	}
	b.ports++
	b.forwards.Set(f, struct{}{})
	return nil
}

// heldConn ends a use when it is closed.
type heldConn struct {
	guestlink.HalfCloser
	release func()
}

func (c *heldConn) Close() error {
	defer c.release()
	return c.HalfCloser.Close()
}

package transport

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// StopTimeout bounds the work for a call whose client has disconnected.
const StopTimeout = 10 * time.Second

// ErrShutdown is the cause with which the contexts of calls end at shutdown.
var ErrShutdown = errors.New("the server is shutting down")

// errEnded is the cause with which the contexts of calls end if the client or this
// server ends their session.
var errEnded = errors.New("the session was ended")

// calls are the calls of a server that are in progress, on all transports.
type calls struct {
	log     *slog.Logger
	ledgers *ledger.Book

	// closing ends, with a cause, when the shutdown cancels the calls that still run.
	closing context.Context
	close   context.CancelCauseFunc

	mu       sync.Mutex
	draining bool
	active   map[*activeCall]struct{}
	busy     int           // calls, and HTTP requests whose answer may not have been sent yet
	idle     chan struct{} // closed when draining and nothing is busy
}

func newCalls(log *slog.Logger, ledgers *ledger.Book) *calls {
	c := &calls{log: log, ledgers: ledgers, idle: make(chan struct{}), active: map[*activeCall]struct{}{}}
	c.closing, c.close = context.WithCancelCause(context.Background())
	return c
}

// lifeKey is a context key. Its value is the context of the whole session, which
// ends when the client is gone for good. The SDK does not pass the end of a
// session's context on to calls, because clients of some transports reconnect.
type lifeKey struct{}

// withLife returns ctx for a session; its calls are cancelled when ctx ends.
func withLife(ctx context.Context) context.Context {
	return context.WithValue(ctx, lifeKey{}, ctx)
}

// An activeCall is a call in progress.
type activeCall struct {
	session string // id of the session over HTTP, or ""
	key     string // of the caller's identity
	name    string // that callName gave it, or ""
	cancel  context.CancelCauseFunc
}

// begin registers a call, or refuses it with [sandbox.Unavailable] during
// shutdown. name is what callName gave the call, or "". The context that it returns ends with ctx, with the session, or when
// the shutdown cancels calls. The caller must call end.
func (c *calls) begin(ctx context.Context, session, name string, id auth.Identity) (_ context.Context, end func(), _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "%w", ErrShutdown)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(c.closing, func() { cancel(context.Cause(c.closing)) })}
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		stops = append(stops, context.AfterFunc(life, func() { cancel(context.Cause(life)) }))
	}
	call := &activeCall{session: session, key: id.Key(), name: name, cancel: cancel}
	c.active[call] = struct{}{}
	c.busy++
	used := sessionOf(ctx).use()
	return ctx, func() {
		used()
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.active, call)
		c.leaveLocked()
	}, nil
}

// enter registers an HTTP request until leave is called. An answer has been sent
// only when its request has ended, so Shutdown waits for requests, too.
func (c *calls) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaveLocked()
	}
}

// leaveLocked ends one use of the server; c.mu is held.
func (c *calls) leaveLocked() {
	c.busy--
	c.checkIdleLocked()
}

// checkIdleLocked closes c.idle, once, if the server is draining and nothing is
// in progress; c.mu is held.
func (c *calls) checkIdleLocked() {
	if !c.draining || c.busy > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// endSession cancels the calls of a session that its client ends.
func (c *calls) endSession(session string, id auth.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for call := range c.active {
		if session != "" && call.session == session && call.key == id.Key() {
			call.cancel(errEnded)
		}
	}
}

// drain refuses new calls and waits for the calls in progress until ctx ends. Then it
// cancels the remaining calls and waits until they have been answered. It returns
// ctx's error if it had to cancel a call.
func (c *calls) drain(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	c.checkIdleLocked()
	c.mu.Unlock()

	var err error
	select {
	case <-c.idle:
	case <-ctx.Done():
		c.mu.Lock()
		left := len(c.active)
		c.mu.Unlock()
		if left > 0 {
			err = ctx.Err()
			c.log.Warn("shutdown cancels calls that did not finish", "calls", left)
		}
	}
	c.close(ErrShutdown)
	select {
	case <-c.idle:
	case <-time.After(StopTimeout + time.Second):
		// Stopping a run has a timeout, so the cause is a client that does not
		// read.
		c.log.Warn("shutdown leaves answers that clients did not take")
	}
	return err
}

package contexts

import (
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// MaxQueue bounds the kept runs of a context that wait for their turn.
const MaxQueue = 64

// beginKept registers x and starts it. If its context is busy, x starts when its
// turn comes.
func (x *run) beginKept() error {
	c := x.context
	x.withdrawn = make(chan struct{})
	if err := c.server.registry.keep(x); err != nil {
		return err
	}
	select {
	case <-c.turn:
	default:
		return x.queue()
	}
	if err := x.open(x.withdrawn); err != nil {
		c.turn <- struct{}{}
		c.server.registry.forget(x)
		return err
	}
	x.start()
	return nil
}

// queue makes x wait for its turn in a goroutine.
func (x *run) queue() error {
	c := x.context
	c.mu.Lock()
	full := c.queued >= MaxQueue
	if !full {
		c.queued++
	}
	c.mu.Unlock()
	if full {
		c.server.registry.forget(x)
		return rpc.Errorf(guestapi.CodeResourceExhausted, "%d runs wait for context %q already", MaxQueue, c.id)
	}
	go func() {
		x.await()
		c.mu.Lock()
		c.queued--
		c.mu.Unlock()
	}()
	return nil
}

// await waits for the turn of x, and starts it.
func (x *run) await() {
	c := x.context
	select {
	case <-x.withdrawn:
		x.neverBegan(guestapi.ExecutionEnd{Status: guestapi.EndInterrupted, Cause: "its turn had not come"})
		return
	case <-c.turn:
	}
	if err := x.open(x.withdrawn); err != nil {
		c.turn <- struct{}{}
		x.neverBegan(guestapi.ExecutionEnd{Status: guestapi.EndDied, StateLost: true, Cause: err.Error()})
		return
	}
	x.start()
}

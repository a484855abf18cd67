package docker

import (
	"context"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A connection is the driver's access to its container engine. Its methods are safe
// for concurrent use.
type connection struct {
	find dockerapi.Options

	mu     sync.Mutex
	engine *dockerapi.Engine // nil until the first use; guarded by mu
	closed bool              // guarded by mu
}

// open returns the container engine. It looks for it at the first call.
func (c *connection) open(ctx context.Context) (*dockerapi.Engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, sandbox.Errorf(sandbox.Conflict, "driver is closed")
	}
	if c.engine != nil {
		return c.engine, nil
	}
	e, err := dockerapi.Find(ctx, c.find)
	if err != nil {
		return nil, err
	}
	c.engine = e
	return e, nil
}

// close makes every later open fail. It returns the container engine for the caller
// to close after its last use, or nil.
func (c *connection) close() *dockerapi.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.engine
	c.engine, c.closed = nil, true
	return e
}

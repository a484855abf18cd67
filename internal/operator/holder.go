package operator

import (
	"context"
	"errors"
	"net"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// holder returns a client of the process that holds a sandbox.
func (o *Operator) holder(ctx context.Context, id string) (control.Client, error) {
	if !sandbox.ValidID(id) {
		return control.Client{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := o.store.Sandbox(ctx, id)
	if err != nil {
		return control.Client{}, err
	}
	if r.State == sandbox.Stopped {
		return control.Client{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has stopped: %s", id, r.Cause)
	}
	alive, err := o.store.OwnerAlive(r.Owner)
	if err != nil {
		return control.Client{}, err
	}
	if !alive {
		return control.Client{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "no process looks after sandbox %s now", id),
			"start the server that made it again")
	}
	return control.Client{Path: o.store.OwnerSocket(r.Owner)}, nil
}

// SetNetwork changes the network policy of any principal's sandbox. The process
// that holds the sandbox does it, within its own limits.
func (o *Operator) SetNetwork(ctx context.Context, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	c, err := o.holder(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return c.SetNetwork(ctx, id, n)
}

// Hibernate makes any principal's sandbox hibernate. The process that holds the sandbox
// does it.
func (o *Operator) Hibernate(ctx context.Context, id string) (sandbox.Sandbox, error) {
	c, err := o.holder(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return c.Hibernate(ctx, id)
}

// Forward connects each connection of a listener to a port of any principal's
// sandbox, in whichever process holds it. It returns when ctx ends or the
// listener fails. It calls report for each failed connection to the port. It
// closes the listener.
func (o *Operator) Forward(ctx context.Context, ln net.Listener, id string, port int, report func(error)) error {
	c, err := o.holder(ctx, id)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	defer ln.Close()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Internal, "accept connections: %w", err)
		}
		o.spawn(func() {
			defer conn.Close()
			to, err := c.DialPort(ctx, id, port)
			if err != nil {
				if ctx.Err() == nil {
					report(err)
				}
				return
			}
			defer to.Close()
			defer context.AfterFunc(ctx, func() {
				conn.Close()
				to.Close()
			})()
			control.Join(conn, to)
		})
	}
}

// Holds returns an error unless a live process holds the sandbox.
func (o *Operator) Holds(ctx context.Context, id string) error {
	_, err := o.holder(ctx, id)
	return err
}

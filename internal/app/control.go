package app

import (
	"context"
	"errors"
	"net"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// listen lets commands in other processes use the sandboxes of this one. Where
// it cannot, only they miss it.
func (s *System) listen() {
	c, err := control.Serve(s.store.OwnerSocket(s.Engine.OwnerID()), s.Engine)
	if err != nil {
		s.log.Warn("commands cannot reach the sandboxes of this process", "error", err)
		return
	}
	s.control = c
}

// holder returns a way to the process that looks after a sandbox.
func (s *System) holder(ctx context.Context, id string) (control.Client, error) {
	if !sandbox.ValidID(id) {
		return control.Client{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a sandbox", id), "glovebox ps lists them")
	}
	r, err := s.store.Sandbox(ctx, id)
	if err != nil {
		return control.Client{}, err
	}
	if r.State == sandbox.Stopped {
		return control.Client{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has stopped: %s", id, r.Cause)
	}
	alive, err := s.store.OwnerAlive(r.Owner)
	if err != nil {
		return control.Client{}, err
	}
	if !alive {
		return control.Client{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "no process looks after sandbox %s now", id),
			"start the server that made it again")
	}
	return control.Client{Path: s.store.OwnerSocket(r.Owner)}, nil
}

// SetNetwork changes what a sandbox may reach, whoever's it is and whichever
// process has it, within what that process allows.
func (s *System) SetNetwork(ctx context.Context, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	c, err := s.holder(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return c.SetNetwork(ctx, id, n)
}

// Forward connects what comes to a listener with a port of a sandbox, whoever's
// it is and whichever process has it, until ctx ends or the listener fails. It
// calls report when a connection could not be made. The listener is closed.
func (s *System) Forward(ctx context.Context, ln net.Listener, id string, port int, report func(error)) error {
	c, err := s.holder(ctx, id)
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
		s.background.Go(func() {
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

// Holds returns an error unless some process looks after the sandbox and can be
// asked.
func (s *System) Holds(ctx context.Context, id string) error {
	_, err := s.holder(ctx, id)
	return err
}

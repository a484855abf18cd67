package app

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Listeners are the listeners of a System.
type Listeners struct {
	MCP net.Listener // for MCP and the other parts of the main server
	E2B net.Listener // for E2B's protocol alone; nil if not configured
	// Metrics is for the metrics alone; nil serves them on MCP.
	Metrics net.Listener
}

// Close closes all listeners.
func (l Listeners) Close() error {
	var errs []error
	for _, ln := range []net.Listener{l.MCP, l.E2B, l.Metrics} {
		if ln != nil {
			errs = append(errs, ln.Close())
		}
	}
	return errors.Join(errs...)
}

// ports returns the ports of the listeners that serve programs of sandboxes.
func (l Listeners) ports() []string {
	var list []string
	for _, ln := range []net.Listener{l.MCP, l.E2B} {
		if ln == nil {
			continue
		}
		if _, port, err := net.SplitHostPort(ln.Addr().String()); err == nil {
			list = append(list, port)
		}
	}
	return list
}

// Listen opens the configured addresses. A socket from a service manager
// replaces the first address.
func (s *System) Listen(ctx context.Context) (Listeners, error) {
	c := &s.opts.Config.Server
	ln, err := inherited(os.Getenv, firstInherited)
	switch {
	case err != nil:
		return Listeners{}, err
	case ln != nil:
		c.Listen = ln.Addr().String()
	default:
		ln, err = listen(ctx, c.Listen, "--listen")
	}
	if err != nil {
		return Listeners{}, err
	}
	lns := Listeners{MCP: ln}
	if c.E2BListen != "" {
		lns.E2B, err = listen(ctx, c.E2BListen, "--e2b-listen")
	}
	if err == nil && c.MetricsListen != "" {
		lns.Metrics, err = listen(ctx, c.MetricsListen, "--metrics-listen")
	}
	if err != nil {
		return Listeners{}, errors.Join(err, lns.Close())
	}
	return lns, nil
}

func listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err == nil {
		return ln, nil
	}
	hint := "name another address with " + flag
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "something else listens there; name another address with " + flag + ", such as 127.0.0.1:0 for any free port"
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "listen: %w", err), "%s", hint)
}

package app

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ports implements the ports over HTTP: the engine connects to them.
type ports struct {
	*audited.Engine
	*httpserver.PortSigner
}

var _ httpserver.Ports = (*ports)(nil)

// localPorts serves ports on a loopback address, for a client on stdio. It
// starts to listen at the first request for a URL.
type localPorts struct {
	// server returns the ports at an address, and a server for them.
	server func(addr string) (*ports, *httpserver.Server, error)

	mu     sync.Mutex
	ports  *ports // nil until the first request
	cancel context.CancelFunc
	served chan error
}

// PortURL is like that method of ports.
func (l *localPorts) PortURL(ctx context.Context, who sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	p, err := l.start(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	return p.PortURL(ctx, who, id, port, good)
}

func (l *localPorts) start(ctx context.Context) (*ports, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ports != nil {
		return l.ports, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "show ports: %w", err)
	}
	p, front, err := l.server(ln.Addr().String())
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	serve, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.ports, l.cancel, l.served = p, cancel, make(chan error, 1)
	go func() { l.served <- front.Serve(serve, ln) }()
	return p, nil
}

// close stops the server, if it was started.
func (l *localPorts) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ports == nil {
		return nil
	}
	l.cancel()
	return <-l.served
}

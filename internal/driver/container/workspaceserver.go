package container

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A WorkspaceServer is this process's server of workspaces. Its methods are safe for
// concurrent use.
type WorkspaceServer struct {
	start func(context.Context) (*Box, error)
	log   *slog.Logger

	starting sync.Mutex // held while the container is started
	box      *Box       // nil until the first use; guarded by starting
}

// NewWorkspaceServer returns a server whose container start starts at the first use,
// with a plan for a [ServerRecord].
func NewWorkspaceServer(start func(context.Context) (*Box, error), log *slog.Logger) *WorkspaceServer {
	return &WorkspaceServer{start: start, log: log}
}

// Dial returns a stream to the server's guest.
func (s *WorkspaceServer) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.dial(ctx)
	return conn, sandbox.Wrap(err, "dial workspaces", "")
}

func (s *WorkspaceServer) dial(ctx context.Context) (net.Conn, error) {
	for again := false; ; again = true {
		b, err := s.started(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := b.dial(ctx)
		if err == nil || again || ctx.Err() != nil {
			return conn, err
		}
		// The server ended: the platform was restarted, or the container was removed.
		s.starting.Lock()
		if s.box == b {
			s.box = nil
		}
		s.starting.Unlock()
		b.Release()
		if err := b.platform.Remove(ctx, b.Ref()); err != nil {
			s.log.Warn("remove the container that kept workspaces", "error", err)
		}
	}
}

// started returns the server's container, and starts it if there is none.
func (s *WorkspaceServer) started(ctx context.Context) (*Box, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.box != nil {
		return s.box, nil
	}
	b, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	s.box = b
	return b, nil
}

// Stop removes the server's container. A later use starts another.
func (s *WorkspaceServer) Stop() error {
	s.starting.Lock()
	b := s.box
	s.box = nil
	s.starting.Unlock()
	if b == nil {
		return nil
	}
	return b.Destroy(context.Background())
}

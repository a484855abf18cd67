package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/bench"
)

// A benchServer is a server in this process, with a caller for it.
type benchServer struct {
	caller *bench.HTTPCaller
	cancel context.CancelFunc
	served chan error
}

// serveBench serves sys on a free port of this machine.
func serveBench(ctx context.Context, sys *app.System) (*benchServer, error) {
	token, err := sys.FirstToken(ctx, true)
	if err != nil {
		return nil, err
	}
	lns, err := sys.Listen(ctx)
	if err != nil {
		return nil, err
	}
	caller := &bench.HTTPCaller{URL: "http://" + lns.MCP.Addr().String() + "/mcp", Token: token}
	s := &benchServer{caller: caller, served: make(chan error, 1)}
	ctx, s.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	go func() { s.served <- sys.ServeHTTP(ctx, lns, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
		return s, nil
	case err := <-s.served:
		s.cancel()
		return nil, err
	}
}

// close stops the server.
func (s *benchServer) close() error {
	s.caller.Close()
	s.cancel()
	return <-s.served
}

// closeBench is close with a timeout, for defer statements.
func closeBench(s *benchServer, err *error) {
	done := make(chan error, 1)
	go func() { done <- s.close() }()
	select {
	case closeErr := <-done:
		*err = errors.Join(*err, closeErr)
	case <-time.After(cleanupTime):
		*err = errors.Join(*err, fmt.Errorf("the server did not end in time"))
	}
}

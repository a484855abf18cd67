// Command test/conformance serves the fixtures of MCP's official conformance suite,
// by the same packages that serve Glovebox's tools over HTTP:
//
//	go run ./test/conformance -listen 127.0.0.1:8080
//
// It asks for no token, so it listens on a loopback address only. It has no engine
// and makes no sandboxes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "loopback `address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run serves at an address until ctx ends.
func run(ctx context.Context, address string) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "serving MCP at http://%s/mcp\n", ln.Addr())
	return serve(ctx, ln, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// serve serves the fixtures on a listener until ctx ends. It closes the listener.
func serve(ctx context.Context, ln net.Listener, log *slog.Logger) error {
	server, err := mcpserver.New(mcpserver.Options{
		Engine:    emptyEngine{},
		Log:       log,
		Version:   "conformance",
		Extension: newFixtures(ctx, log).extension(),
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	local := auth.Local()
	front, err := httpserver.New(httpserver.Options{
		Listen:    ln.Addr().String(),
		MCP:       server.Handler(),
		Anonymous: &local, // the suite sends no token
		Log:       log,
		Drain:     server.Shutdown,
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	return front.Serve(ctx, ln)
}

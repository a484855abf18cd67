package cli

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/advice"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forward SANDBOX [LOCAL:]PORT",
		Short: "Reach a port of a sandbox from this machine",
		Long: `Forward connections from a port of this machine to a port of a sandbox. Forward
listens on the loopback address until Ctrl-C. The sandbox needs no network for
it. Without LOCAL, the two ports have the same number; if LOCAL is 0, Forward
uses a free port.

The sandbox may belong to a server, an MCP client or another command.`,
		Example: `  glovebox forward sbx_… 8000
  glovebox forward sbx_… 9000:8000
  psql -h 127.0.0.1 -p 5432           while another terminal has: glovebox forward sbx_… 5432`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return sandbox.WithHint(console.UsageError("forward needs a sandbox and a port, but has %d arguments", len(args)), "list sandboxes with glovebox ps")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			local, port, err := parsePorts(args[1])
			if err != nil {
				return err
			}
			return p.forward(cmd.Context(), sandbox.CanonicalID(args[0]), local, port)
		},
	}
}

// parsePorts parses [LOCAL:]PORT.
func parsePorts(text string) (local, port int, err error) {
	first, second, two := strings.Cut(text, ":")
	if !two {
		second = first
	}
	l, lErr := strconv.ParseUint(first, 10, 16)
	r, rErr := strconv.ParseUint(second, 10, 16)
	if lErr != nil || rErr != nil || r == 0 {
		return 0, 0, console.UsageError("%q is not PORT or LOCAL:PORT", text)
	}
	return int(l), int(r), nil
}

func (p *program) forward(ctx context.Context, id string, local, port int) (err error) {
	sys, err := p.open(ctx, looks)
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	if err := sys.Holds(ctx, id); err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%w", err), "use another port of this machine: glovebox forward %s 0:%d", id, port)
	}
	p.Say("%s leads to port %d of %s; press Ctrl-C to end", ln.Addr(), port, id)
	return sys.Forward(ctx, ln, id, port, func(err error) {
		p.Say("glovebox: %v", err)
		if hint := sandbox.HintOf(err); hint != "" {
			p.Hint(advice.ForCommands(hint))
		}
	})
}

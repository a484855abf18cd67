package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver"
)

// fixtures are the tools, resources and prompts that the suite expects. The server
// offers them beside Glovebox's tools. They use the same transports, dispatch and
// limits, which are the subject of the test.
type fixtures struct {
	ctx   context.Context // ends with the server
	log   *slog.Logger
	tasks *tasks
}

func newFixtures(ctx context.Context, log *slog.Logger) *fixtures {
	return &fixtures{ctx: ctx, log: log, tasks: newTasks(ctx)}
}

// extension returns the fixtures in the form that an MCP server accepts.
func (f *fixtures) extension() *mcpserver.Extension {
	return &mcpserver.Extension{
		// Unlike Glovebox's own, the lists of the fixtures change.
		Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}},
		Add:          f.add,
		Subscribable: func(uri string) bool { return uri == watchedResource },
		Tasks:        f.tasks,
	}
}

// add registers all fixtures.
func (f *fixtures) add(server *mcp.Server) {
	for _, t := range slices.Concat(contentFixtures(), protocolFixtures(server), f.tasks.fixtures(), inputFixtures()) {
		server.AddTool(&mcp.Tool{
			Name:        t.name,
			Description: t.description,
			InputSchema: json.RawMessage(cmp.Or(t.input, anyObject)),
		}, t.run)
	}
	addResources(f.ctx, f.log, server)
	addPrompts(server)
}

package mcpserver

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
)

// An Extension adds tools, resources and prompts to a server. The server does not
// check scopes for them, and does not count their answers. All fields must be set.
type Extension struct {
	// Capabilities are announced instead of those of Glovebox's own tools and
	// resources.
	Capabilities *mcp.ServerCapabilities
	// Add registers the tools, resources and prompts. It may keep the server to
	// change them later.
	Add func(*mcp.Server)
	// Subscribable reports whether clients may subscribe to a resource of the
	// extension. The extension itself notifies the subscribers.
	Subscribable func(uri string) bool
	// Tasks has the tasks that the extension's tools put into a [task.Slot].
	Tasks task.Source
}

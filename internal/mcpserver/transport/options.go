package transport

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
)

// Options are the arguments of [New]. MCP, Log and Shares must be set.
type Options struct {
	MCP    *mcp.Server
	Log    *slog.Logger
	Shares *ledger.Shares

	// Name is the server's name in paths: it is also at /mcp/NAME and /mcp/NAME/sse.
	Name string
	// Sessionless serves clients of Streamable HTTP that do not support sessions.
	Sessionless bool

	// MaxMessageBytes is the largest message that a client may send, in bytes.
	// Zero is [DefaultMaxMessageBytes].
	MaxMessageBytes int64
	// SessionTimeout is the time without a request after which a session ends.
	// Zero is [DefaultSessionTimeout].
	SessionTimeout time.Duration
}

// Defaults of [Options].
const (
	DefaultMaxMessageBytes = 8 << 20
	DefaultSessionTimeout  = 2 * time.Hour
)

func (o Options) withDefaults() Options {
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, DefaultSessionTimeout)
	return o
}

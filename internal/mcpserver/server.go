package mcpserver

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/client"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/lost"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/notices"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/visits"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options are the arguments of [New]. Engine and Log must be set.
type Options struct {
	Engine  Engine
	Log     *slog.Logger
	Version string

	// Profile, if not nil, replaces this package's own tools and resources.
	Profile *profile.Profile

	// Ports makes URLs for ports of sandboxes. If it is nil, there is no preview_url.
	Ports Ports
	// Files makes URLs for files, and HostFiles copies files from and to this
	// machine. Both may be nil. HostFiles is only for a server on stdio.
	Files     Files
	HostFiles HostFiles

	// Tools, if not empty, is the list of tools to offer; the others are left
	// out. ReadOnly leaves out all tools that change something.
	Tools    []string
	ReadOnly bool

	// ToolPrefix is put in front of the names of all tools, also in texts. Tools and
	// the log have the names without it. Its characters are the caller's to check.
	ToolPrefix string

	// ApproveNetwork and ApproveLimits say that a call which makes a sandbox with more
	// network or higher limits than the operator's defaults asks a person at the client.
	ApproveNetwork, ApproveLimits bool

	// Internet says that the operator allows sandboxes every public address. Tools
	// that run programs then have MCP's hint of an open world.
	Internet bool
	// Called, if not nil, is called at the end of each call with its error's kind, or "".
	Called func(ctx context.Context, tool string, kind sandbox.Kind, took time.Duration)

	// MaxMessageBytes is the largest message that a client may send, in bytes.
	// Zero is [transport.DefaultMaxMessageBytes].
	MaxMessageBytes int64
	// MaxSessions bounds the open HTTP sessions of clients of older protocol versions.
	// Zero is [ledger.DefaultMaxSessions]. It is ignored if Shares is set.
	MaxSessions int
	// Shares are the resource pools that all principals share, possibly with
	// other servers of the process. Nil makes pools for this server alone.
	Shares *ledger.Shares
	// SessionTimeout is the time without a request after which a session ends.
	// Zero is [transport.DefaultSessionTimeout].
	SessionTimeout time.Duration
	// Patience is how long a call waits for its run if the caller does not
	// specify it. Zero is [DefaultPatience].
	Patience time.Duration
	// Grace is how long a run goes on if its client gave up the call that waits for
	// it, unless another call asks for the run. Zero is [DefaultGrace].
	Grace time.Duration

	// Extension adds tools, resources and prompts that are not Glovebox's. Nil adds
	// none. It is ignored if Profile is set.
	Extension *Extension
}

// DefaultPatience is the default of Options.Patience. Clients wait longer for a call.
// So the client gets the run's id and the output so far, and not a timeout.
const DefaultPatience = client.DefaultWait

// DefaultGrace is the default of Options.Grace. It lets a model that learned only of a
// timeout look for the run.
const DefaultGrace = 2 * time.Minute

// MaxWait is the longest time that a caller may ask a call to wait for a run. Few
// clients wait so long; see package client.
const MaxWait = client.MaxWait

// A Server offers an engine over MCP. It is safe for concurrent use.
type Server struct {
	engine    Engine
	shares    *ledger.Shares
	log       *slog.Logger
	opts      Options
	mcp       *mcp.Server
	transport *transport.Server
	watch     *watcher
	visits    visits.Visits
	renamer   *renamer
	grace     lost.Grace
	keys      lost.Keys // of the local user
	keptKeys  lost.Keys // of the others, in the engine's records
	notices   *notices.Notices
}

// Handler serves MCP over HTTP; see [transport.Server.Handler]. NAME in its paths is
// the profile's name, or [NativeProfile].
func (s *Server) Handler() http.Handler { return s.transport.Handler() }

// ServeStdio serves one client, the local user, until in or ctx ends. It stops the
// runs of calls in progress and in grace before it returns; see [transport.Server.ServeStdio].
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	defer s.grace.Wait()
	defer s.grace.End(func(id auth.Identity) bool { return id.Principal == sandbox.Local })
	return s.transport.ServeStdio(ctx, in, out)
}

// Busy reports whether a session over HTTP is open, or a run is in grace.
func (s *Server) Busy() bool { return s.transport.Busy() || s.grace.Busy() }

// End ends the sessions of all identities for which gone returns true, and their runs
// in grace. It does not wait for their end.
func (s *Server) End(gone func(auth.Identity) bool) {
	s.transport.End(gone)
	s.grace.End(gone)
}

// Shutdown refuses new calls and waits for the calls in progress until ctx ends.
// Then it cancels the remaining calls, which stops their runs and answers their
// callers. Last, it closes every session, and stops the runs in grace. Runs over HTTP
// with an idempotency_key go on: the repeated call finds them at the next server. It
// returns ctx's error if it had to cancel a call.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.transport.Shutdown(ctx)
	s.grace.Close()
	s.watch.stopAll()
	s.notices.Close()
	return err
}

package mcpserver

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options are the arguments of [New]. Engine and Log must be set.
type Options struct {
	Engine  Engine
	Log     *slog.Logger
	Version string

	// Profile, if not nil, is served instead of this package's own tools and
	// resources.
	Profile *profile.Profile

	// Ports makes URLs for ports of sandboxes. Nil: the tool preview_url is not
	// offered.
	Ports Ports
	// Files makes URLs for files, and HostFiles copies files from and to this
	// machine. Both may be nil. HostFiles is only for a server on stdio.
	Files     Files
	HostFiles HostFiles

	// Tools, if not empty, is the list of tools to offer; the others are left
	// out. ReadOnly leaves out all tools that change something.
	Tools    []string
	ReadOnly bool

	// MaxMessageBytes is the largest message that a client may send, in bytes.
	// Zero is [transport.DefaultMaxMessageBytes].
	MaxMessageBytes int64
	// MaxSessions bounds the open HTTP sessions of clients that speak an older
	// version of the protocol. Zero is [ledger.DefaultMaxSessions]. It is ignored if
	// Shares is set.
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

	// Extension adds tools, resources and prompts that are not Glovebox's. Nil adds
	// none. It is ignored if Profile is set.
	Extension *Extension
}

// DefaultPatience is the default of Options.Patience. It is below one minute, the
// usual timeout of clients for a call. So the client gets the run's id and the output
// so far, and not a timeout.
const DefaultPatience = 50 * time.Second

// MaxWait is the longest time that a caller may ask a call to wait for a run.
const MaxWait = 10 * time.Minute

// A Server offers an engine over MCP. It is safe for concurrent use.
type Server struct {
	engine    Engine
	shares    *ledger.Shares
	log       *slog.Logger
	opts      Options
	mcp       *mcp.Server
	transport *transport.Server
	watch     *watcher
}

// New returns a Server. If Options.Tools names an unknown tool, it returns an
// error wrapping [sandbox.Invalid].
func New(o Options) (*Server, error) {
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	if o.Shares == nil {
		o.Shares = ledger.NewShares(o.MaxSessions)
	}
	s := &Server{engine: countedEngine{o.Engine, o.Shares.Searches}, shares: o.Shares, log: o.Log, opts: o}
	s.watch = newWatcher(s)
	self := &mcp.Implementation{Name: "glovebox", Title: "Glovebox", Version: o.Version}
	if p := o.Profile; p != nil {
		self.Name, self.Version = p.ServerName, p.ServerVersion
	}
	s.mcp = mcp.NewServer(self, s.serverOptions())
	s.transport = transport.New(transport.Options{
		MCP: s.mcp, Log: o.Log, Shares: o.Shares,
		Name: s.profileName(), Sessionless: o.Profile != nil && o.Profile.Sessionless,
		MaxMessageBytes: o.MaxMessageBytes, SessionTimeout: o.SessionTimeout,
	})

	if err := s.addTools(); err != nil {
		return nil, err
	}
	if o.Profile != nil {
		s.addProfileResources(o.Profile)
	} else {
		s.addResources()
		if err := s.addTasks(); err != nil {
			return nil, err
		}
		if o.Extension != nil {
			o.Extension.Add(s.mcp)
		}
	}
	s.mcp.AddReceivingMiddleware(s.filterTools, task.WithSlot)
	return s, nil
}

// addTools registers the tools that Options.Tools and Options.ReadOnly allow.
func (s *Server) addTools() error {
	all := s.tools()
	for _, name := range s.opts.Tools {
		if !slices.ContainsFunc(all, func(t tool) bool { return t.name == name }) {
			names := make([]string, len(all))
			for i, t := range all {
				names[i] = t.name
			}
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "tools: there is no tool %q", name),
				"the tools are %s", joinWords(names))
		}
	}
	for _, t := range all {
		if len(s.opts.Tools) > 0 && !slices.Contains(s.opts.Tools, t.name) {
			continue
		}
		if s.opts.ReadOnly && !t.readOnly {
			continue
		}
		s.mcp.AddTool(t.definition(), s.handler(t))
	}
	return nil
}

// tools returns every tool, in the order of the documentation.
func (s *Server) tools() []tool {
	if s.opts.Profile != nil {
		return s.profileTools(s.opts.Profile)
	}
	all := []tool{
		s.runCode(), s.runCommand(), s.getRun(), s.stopRun(), s.sendInput(),
		s.createSandbox(), s.getSandbox(), s.listSandboxes(), s.setNetwork(), s.stopSandbox(),
		s.writeFile(), s.readFile(), s.listFiles(),
		s.installPackages(), s.listLanguages(),
		s.listWorkspaces(), s.deleteWorkspace(),
	}
	if s.opts.Files != nil {
		all = append(all, s.fileURL())
	}
	if s.opts.Ports != nil {
		all = append(all, s.previewURL())
	}
	if s.opts.HostFiles != nil {
		all = append(all, s.copyIn(), s.copyOut())
	}
	return all
}

// filterTools removes from tools/list the tools that the caller's scopes do not
// allow.
func (s *Server) filterTools(next mcp.MethodHandler) mcp.MethodHandler {
	scopes := map[string]auth.Scope{}
	for _, t := range s.tools() {
		scopes[t.name] = t.scope
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		id, _ := auth.FromContext(ctx)
		list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool {
			scope, ours := scopes[t.Name]
			return ours && !id.Can(scope)
		})
		return list, nil
	}
}

// Handler serves MCP over HTTP; see [transport.Server.Handler]. NAME in its paths is
// the profile's name, or [NativeProfile].
func (s *Server) Handler() http.Handler { return s.transport.Handler() }

// ServeStdio serves one client, the local user, until in or ctx ends. It stops the
// runs of calls in progress before it returns; see [transport.Server.ServeStdio].
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.transport.ServeStdio(ctx, in, out)
}

// Busy reports whether a session over HTTP is open.
func (s *Server) Busy() bool { return s.transport.Busy() }

// End ends the sessions of all identities for which gone returns true. It does
// not wait for their end.
func (s *Server) End(gone func(auth.Identity) bool) { s.transport.End(gone) }

// Shutdown refuses new calls and waits for the calls in progress until ctx ends.
// Then it cancels the remaining calls, which stops their runs and answers their
// callers. Last, it closes every session. It returns ctx's error if it had to
// cancel a call.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.transport.Shutdown(ctx)
	s.watch.stopAll()
	return err
}

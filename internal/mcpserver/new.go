package mcpserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/lost"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/notices"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// New returns a Server. If Options.Tools names an unknown tool, it returns an
// error wrapping [sandbox.Invalid].
func New(o Options) (*Server, error) {
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	if o.Shares == nil {
		o.Shares = ledger.NewShares(o.MaxSessions)
	}
	s := &Server{engine: countedEngine{o.approved(o.Engine), o.Shares.Searches}, shares: o.Shares, log: o.Log, opts: o}
	s.renamer = newRenamer(o.ToolPrefix, s.tools())
	s.watch = newWatcher(s)
	s.notices = notices.New(s.engine, o.Log)
	s.grace = lost.Grace{Time: o.Grace, Log: o.Log, Stop: func(ctx context.Context, p sandbox.Principal, runID string) error {
		_, err := s.engine.StopRun(ctx, p, runID)
		return err
	}}
	s.keptKeys.Past = func(ctx context.Context, p sandbox.Principal, key, call string) (string, error) {
		return s.engine.KeyedRun(ctx, p, *runKey(key, call))
	}
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
		s.addPrompts()
		if err := s.addTasks(); err != nil {
			return nil, err
		}
		if o.Extension != nil {
			o.Extension.Add(s.mcp)
		}
	}
	s.mcp.AddReceivingMiddleware(s.filterTools, s.followLevels, task.WithSlot)
	return s, nil
}

// addTools registers the offered tools.
func (s *Server) addTools() error {
	all := s.tools()
	for _, name := range s.opts.Tools {
		if !slices.ContainsFunc(all, func(t tool) bool { return t.name == name }) {
			names := make([]string, len(all))
			for i, t := range all {
				names[i] = t.name
			}
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "tools: there is no tool %q", name),
				"the tools are %s", argument.JoinWords(names))
		}
	}
	for _, t := range s.offered() {
		s.mcp.AddTool(t.definition(s.opts.Internet, s.renamer), s.handler(t))
	}
	return nil
}

// offered returns the tools that Options.Tools and Options.ReadOnly allow.
func (s *Server) offered() []tool {
	return slices.DeleteFunc(s.tools(), func(t tool) bool {
		return len(s.opts.Tools) > 0 && !slices.Contains(s.opts.Tools, t.name) || s.opts.ReadOnly && !t.readOnly
	})
}

// tools returns every tool, in the order of the documentation.
func (s *Server) tools() []tool {
	if s.opts.Profile != nil {
		return s.profileTools(s.opts.Profile)
	}
	all := []tool{
		s.runCode(), s.runCommand(), s.getRun(), s.stopRun(), s.sendInput(),
		s.createSandbox(), s.getSandbox(), s.listSandboxes(), s.setNetwork(), s.stopSandbox(),
		s.writeFile(), s.editFile(), s.readFile(), s.listFiles(), s.searchFiles(), s.getChanges(), s.snapshot(),
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

// filterTools removes from tools/list and prompts/list the entries that the caller's
// scopes do not allow, and the output schemas for clients that get no structuredContent.
func (s *Server) filterTools(next mcp.MethodHandler) mcp.MethodHandler {
	tools := map[string]tool{}
	for _, t := range s.tools() {
		tools[s.renamer.name(t.name)] = t
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		id, _ := auth.FromContext(ctx)
		if list, ok := res.(*mcp.ListPromptsResult); err == nil && ok && s.opts.Profile == nil {
			hidePrompts(list, id)
		}
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		if r, ok := req.(*mcp.ListToolsRequest); ok && clientOf(r.ClientInfo()).TextOnly {
			for i, t := range list.Tools {
				without := *t
				without.OutputSchema = nil
				list.Tools[i] = &without
			}
		}
		list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool {
			known, ours := tools[t.Name]
			return ours && !id.May(known.scope, known.readOnly)
		})
		return list, nil
	}
}

// listTTL is how long a client may cache a list. Tools and templates change only
// with a new version of the server.
const listTTL = time.Hour

func (s *Server) serverOptions() *mcp.ServerOptions {
	o := &mcp.ServerOptions{
		Instructions:       s.renamer.text(instructions),
		CompletionHandler:  s.complete,
		SubscribeHandler:   s.watch.subscribe,
		UnsubscribeHandler: s.watch.unsubscribe,
		SetCacheable: func(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
			// Answers depend on the caller's identity.
			c.CacheScope = "private"
			if _, read := req.(*mcp.ReadResourceRequest); !read {
				c.TTLMs = int(listTTL.Milliseconds())
			}
		},
	}
	o.Capabilities = &mcp.ServerCapabilities{
		// The sets of tools, resources and prompts never change.
		Tools:     &mcp.ToolCapabilities{},
		Resources: &mcp.ResourceCapabilities{},
	}
	if s.opts.Profile == nil {
		o.Capabilities.Prompts = &mcp.PromptCapabilities{}
		o.Capabilities.Logging = &mcp.LoggingCapabilities{}
	}
	if p := s.opts.Profile; p != nil {
		o.Instructions = s.renamer.text(p.Instructions)
		o.CompletionHandler = nil
		if len(p.Resources) == 0 {
			o.SubscribeHandler, o.UnsubscribeHandler = nil, nil
			o.Capabilities.Resources = nil
		}
		return o
	}
	if e := s.opts.Extension; e != nil {
		o.Capabilities = e.Capabilities
	}
	o.Capabilities.AddExtension(task.Extension, nil)
	return o
}

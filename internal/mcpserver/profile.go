package mcpserver

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// NativeProfile is the name of this package's own tools, where the name of a
// profile is expected.
const NativeProfile = "native"

// profileName returns the name of the profile that s serves.
func (s *Server) profileName() string {
	if s.opts.Profile != nil {
		return s.opts.Profile.Name
	}
	return NativeProfile
}

// profileTools converts the tools of a profile.
func (s *Server) profileTools(p *profile.Profile) []tool {
	tools := make([]tool, len(p.Tools))
	for i, t := range p.Tools {
		tools[i] = tool{
			name:        t.Name,
			description: t.Description,
			input:       t.Input,
			scope:       t.Scope,
			readOnly:    t.ReadOnly,
			destructive: t.Destructive,
			open:        t.Scope == auth.ScopeRun && !t.ReadOnly && !t.Destructive,
			run: func(ctx context.Context, c call, args json.RawMessage) (*mcp.CallToolResult, error) {
				r, err := t.Run(ctx, s.profileCall(c), args)
				if err != nil {
					return nil, err
				}
				return profileResult(r)
			},
		}
	}
	return tools
}

// profileCall converts a call for a profile.
func (s *Server) profileCall(c call) profile.Call {
	connection := c.req.Session.ID()
	return profile.Call{
		Principal:  c.principal,
		Connection: connection,
		AtEnd: func(f func(context.Context)) {
			if connection == "" {
				return // stdio or a stateless request: there is no session that ends
			}
			go func() {
				c.req.Session.Wait()
				ctx, cancel := context.WithTimeout(context.Background(), transport.StopTimeout)
				defer cancel()
				f(ctx)
			}()
		},
		Run: func(ctx context.Context, r sandbox.RunRequest) (sandbox.Run, error) {
			return s.toItsEnd(ctx, c, func() (sandbox.Run, error) { return s.engine.Start(ctx, c.principal, r) })
		},
		Install: func(ctx context.Context, r sandbox.PackagesRequest) (sandbox.Run, error) {
			return s.toItsEnd(ctx, c, func() (sandbox.Run, error) { return s.engine.Install(ctx, c.principal, r) })
		},
	}
}

// toItsEnd starts a run and waits for its end. If waiting fails, it returns the
// error and the run's last known state, which includes the sandbox's id.
func (s *Server) toItsEnd(ctx context.Context, c call, start func() (sandbox.Run, error)) (sandbox.Run, error) {
	run, err := start()
	for err == nil && run.Status == sandbox.RunRunning {
		var next sandbox.Run
		if next, err = s.finish(ctx, c, run.ID, patience{time: MaxWait}, false); err == nil {
			run = next
		}
	}
	c.facts.ran(run)
	return run, err
}

// addProfileResources registers the resources of a profile.
func (s *Server) addProfileResources(p *profile.Profile) {
	for _, r := range p.Resources {
		s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
			Name:        r.Name,
			Description: r.Description,
			URITemplate: r.Template,
			MIMEType:    r.MIMEType,
		}, s.resource(auth.ScopeRun, counted(func(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
			parts, err := r.Read(ctx, p, u)
			if err != nil {
				return nil, err
			}
			contents := make([]*mcp.ResourceContents, len(parts))
			for i, c := range parts {
				contents[i] = &mcp.ResourceContents{URI: c.URI, MIMEType: r.MIMEType, Text: c.Text}
			}
			return contents, nil
		})))
	}
}

// profileLogs returns the id of the sandbox whose log the URI of a profile's
// resource names.
func (s *Server) profileLogs(u *url.URL) (sandboxID string, ok bool) {
	if s.opts.Profile == nil {
		return "", false
	}
	for _, r := range s.opts.Profile.Resources {
		if id := r.SandboxID(u); id != "" {
			return id, true
		}
	}
	return "", false
}

// subscribable lists the templates of the resources that support subscriptions.
func (s *Server) subscribable() []string {
	if s.opts.Profile == nil {
		return []string{outputTemplate, logsTemplate, fileTemplate}
	}
	templates := []string{}
	for _, r := range s.opts.Profile.Resources {
		templates = append(templates, r.Template)
	}
	return templates
}

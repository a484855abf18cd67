package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The URI templates of the resources.
const (
	logsTemplate   = "sandbox://{id}/logs"
	fileTemplate   = "sandbox://{id}/files/{+path}"
	outputTemplate = "run://{id}/output"
)

// Size limits for one read of a resource, in bytes.
const (
	maxResourceFile   = 4 << 20
	maxResourceOutput = 1 << 20
)

// listTTL is how long a client may cache a list. Tools and templates change only
// with a new version of the server.
const listTTL = time.Hour

func (s *Server) serverOptions() *mcp.ServerOptions {
	o := &mcp.ServerOptions{
		Instructions:       instructions,
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
		// The sets of tools and resources never change.
		Tools:     &mcp.ToolCapabilities{},
		Resources: &mcp.ResourceCapabilities{},
	}
	if p := s.opts.Profile; p != nil {
		o.Instructions = p.Instructions
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

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "file",
		Title:       "A file in a sandbox",
		Description: "A file by its path from the root: sandbox://{id}/files/data/report.csv is /data/report.csv. Subscribe to hear of changes.",
		URITemplate: fileTemplate,
	}, s.resource(auth.ScopeFiles, s.readFileResource))
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "logs",
		Title:       "The log of a sandbox",
		Description: "Every run of a sandbox in order: what it wrote and how it ended, in 1 MiB at most. Subscribe to hear of more.",
		URITemplate: logsTemplate,
		MIMEType:    "text/plain",
	}, s.resource(auth.ScopeRun, s.readLogsResource))
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "output",
		Title:       "The output of a run",
		Description: "What a run wrote so far, stdout first; head and tail of it above 1 MiB. Subscribe to hear of more.",
		URITemplate: outputTemplate,
		MIMEType:    "text/plain",
	}, s.resource(auth.ScopeRun, s.readOutputResource))
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "result",
		Title:       "A result of a run",
		Description: "One MIME type of a value or plot that a run showed, by its number from 0, in full.",
		URITemplate: resultsTemplate,
	}, s.resource(auth.ScopeRun, counted(s.readResultResource)))
}

// resource wraps a handler with the work that all reads have in common. It
// returns errors as protocol errors, because a resource has no other kind.
func (s *Server) resource(scope auth.Scope, read func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error)) mcp.ResourceHandler {
	return func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		uri := req.Params.URI
		id, ok := auth.FromContext(ctx)
		if !ok || !id.Can(scope) {
			return nil, notFound(uri)
		}
		u, err := url.Parse(uri)
		if err != nil {
			return nil, notFound(uri)
		}
		ctx, end, err := s.transport.Begin(ctx, id, req.Session.ID(), req.Extra)
		if err != nil {
			return nil, s.protocolError(uri, err)
		}
		defer end()
		contents, err := read(ctx, id.Principal, u)
		if err == nil {
			err = grown(ctx, id.Principal, contents)
		}
		if err != nil {
			return nil, s.protocolError(uri, err)
		}
		return &mcp.ReadResourceResult{Contents: contents}, nil
	}
}

// counted counts the content that a handler read in the call's ledger.
func counted(read func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error)) func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error) {
	return func(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
		contents, err := read(ctx, p, u)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, c := range contents {
			size += len(c.Text) + len(c.Blob)
		}
		// countedEngine has already counted the read itself.
		_, err = ledger.Of(ctx).Take(ctx, p, int64(size)*(ledger.AnswerCost-2)/ledger.AnswerCost)
		return contents, err
	}
}

// notFound is the protocol's error for a resource that does not exist. The SDK's
// own error cannot be encoded for every URI.
func notFound(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: mcp.CodeResourceNotFound, Message: "Resource not found", Data: data}
}

// protocolError converts an error to a protocol error by its kind.
func (s *Server) protocolError(uri string, err error) error {
	text := err.Error()
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + hint
	}
	switch kind := sandbox.KindOf(err); kind {
	case sandbox.NotFound:
		return notFound(uri)
	case sandbox.Invalid, sandbox.Unsupported, sandbox.Conflict:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
	case sandbox.Internal:
		s.log.Error("resource failed", "error", err)
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; the server's log says how"}
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: text}
	}
}

func (s *Server) readFileResource(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
	path := strings.TrimPrefix(u.Path, "/files")
	data, size, err := s.readPart(ctx, p, u.Host, path, 0, maxResourceFile)
	if err != nil {
		return nil, err
	}
	if size > int64(len(data)) {
		return nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "%s has %s, more than a resource can hold", path, sandbox.FormatBytes(size)),
			"read it in parts with read_file")
	}
	c := &mcp.ResourceContents{MIMEType: http.DetectContentType(data)}
	if utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	return []*mcp.ResourceContents{c}, nil
}

func (s *Server) readOutputResource(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
	out, err := s.engine.Output(ctx, p, u.Host, maxResourceOutput)
	if err != nil {
		return nil, err
	}
	contents := []*mcp.ResourceContents{{Text: out.Stdout}}
	if out.Stderr != "" {
		contents = append(contents, &mcp.ResourceContents{URI: u.String() + "#stderr", Text: out.Stderr})
	}
	return contents, nil
}

// maxCompletions is the protocol's limit for suggestions.
const maxCompletions = 100

// complete suggests ids and paths for the resource templates.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	res := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	id, ok := auth.FromContext(ctx)
	if !ok || req.Params.Ref == nil {
		return res, nil
	}
	uri := req.Params.Ref.URI
	var values []string
	var err error
	switch {
	case uri == outputTemplate && req.Params.Argument.Name == "id" && id.Can(auth.ScopeRun):
		values, err = s.completeRun(ctx, id.Principal)
	case (uri == fileTemplate || uri == logsTemplate) && req.Params.Argument.Name == "id" && id.Can(auth.ScopeRun):
		values, err = s.completeID(ctx, id.Principal)
	case uri == fileTemplate && req.Params.Argument.Name == "path" && id.Can(auth.ScopeFiles) && req.Params.Context != nil:
		values, err = s.completePath(ctx, id.Principal, req.Params.Context.Arguments["id"], req.Params.Argument.Value)
	}
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return nil, s.protocolError(uri, err)
	}
	for _, v := range values {
		if !strings.HasPrefix(v, req.Params.Argument.Value) {
			continue
		}
		res.Completion.Total++
		if len(res.Completion.Values) < maxCompletions {
			res.Completion.Values = append(res.Completion.Values, v)
		} else {
			res.Completion.HasMore = true
		}
	}
	return res, nil
}

func (s *Server) completeID(ctx context.Context, p sandbox.Principal) ([]string, error) {
	sbs, err := s.engine.List(ctx, p)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, sb := range sbs {
		if sb.State != sandbox.Stopped {
			ids = append(ids, sb.ID)
		}
	}
	return ids, nil
}

// completePath lists the directory of value. The suggestions have no leading
// slash, because the template has it.
func (s *Server) completePath(ctx context.Context, p sandbox.Principal, id, value string) ([]string, error) {
	dir := "/" + value[:strings.LastIndexByte(value, '/')+1]
	files, _, err := s.engine.ListFiles(ctx, p, id, dir, 1)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range files {
		path := strings.TrimPrefix(f.Path, "/")
		if f.Type == sandbox.TypeDirectory {
			path += "/"
		}
		paths = append(paths, path)
	}
	return paths, nil
}

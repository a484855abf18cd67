package mcpserver

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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

// completeRun suggests runs of the caller's sandboxes. It takes the sandboxes in
// the engine's order, and of each the newest run first.
func (s *Server) completeRun(ctx context.Context, p sandbox.Principal) ([]string, error) {
	sbs, err := s.engine.List(ctx, p)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, sb := range sbs {
		runs, err := s.engine.Runs(ctx, p, sb.ID, maxCompletions+1)
		if errors.Is(err, sandbox.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, r := range slices.Backward(runs) {
			ids = append(ids, r.ID)
		}
		if len(ids) > maxCompletedRuns {
			break
		}
	}
	return ids, nil
}

// maxCompletedRuns bounds the runs that a completion considers.
const maxCompletedRuns = 1000

package mcpserver

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/resultview"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) addResources() {
	resultview.Add(s.mcp)
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

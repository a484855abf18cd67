package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const listFilesOutput = `{"type":"object","properties":{"path":{"type":"string"},"files":{"type":"array","items":{"type":"object"}},"truncated":{"type":"boolean"}}}`

// furtherDown says how to see more files.
const furtherDown = "list a directory further down, or with less depth"

func (s *Server) listFiles() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Path      string `json:"path,omitempty" jsonschema:"default /data"`
		Depth     int    `json:"depth,omitempty" jsonschema:"default 1; with glob all"`
		Glob      string `json:"glob,omitempty" jsonschema:"like **/*.go"`
	}
	type list struct {
		Path      string         `json:"path"`
		Files     []sandbox.File `json:"files"`
		Truncated bool           `json:"truncated,omitempty"`
		NextStep  string         `json:"next_step,omitempty"`
	}
	return takes(tool{
		name:        "list_files",
		title:       "List files",
		description: "List a directory of a sandbox, to a depth.",
		output:      listFilesOutput,
		long:        true,
		scope:       auth.ScopeFiles,
		readOnly:    true,
	}, limits{"depth": between(1, 32)}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		path := cmp.Or(in.Path, sandbox.WorkDir)
		var files []sandbox.File
		var more bool
		var err error
		further := furtherDown
		if in.Glob == "" {
			files, more, err = s.engine.ListFiles(ctx, c.principal, in.SandboxID, path, cmp.Or(in.Depth, 1))
		} else {
			var l sandbox.Listing
			l, err = s.engine.GlobFiles(ctx, c.principal, in.SandboxID, path, in.Glob, in.Depth)
			files, more = l.Files, l.Omitted > 0 || l.Incomplete
			further = omitted(l.Omitted, "files", l.Cut)
		}
		if err != nil {
			return nil, err
		}
		if files == nil {
			files = []sandbox.File{}
		}
		var b strings.Builder
		next := ""
		for _, f := range files {
			fmt.Fprintf(&b, "%s %8d %s", f.Mode, f.Size, answer.ShownName(f.Path))
			if f.Type == sandbox.TypeSymlink {
				fmt.Fprintf(&b, " -> %s", answer.ShownName(f.Target))
			}
			b.WriteByte('\n')
		}
		switch {
		case more:
			b.WriteString("[there are more: " + further + "]")
			next = further
		case len(files) == 0 && in.Glob != "":
			fmt.Fprintf(&b, "[no file below %s matches]", answer.ShownName(path))
		case len(files) == 0:
			fmt.Fprintf(&b, "[%s is empty]", answer.ShownName(path))
		}
		return answer.New(list{path, files, more, next}, strings.TrimSuffix(b.String(), "\n"))
	})
}

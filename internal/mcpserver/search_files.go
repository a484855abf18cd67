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

func (s *Server) searchFiles() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Pattern   string `json:"pattern" jsonschema:"RE2, for one line"`
		Path      string `json:"path,omitempty" jsonschema:"default /data"`
		Glob      string `json:"glob,omitempty" jsonschema:"like *.{ts,tsx} or src/**"`
		Context   int    `json:"context_lines,omitempty"`
		Max       int    `json:"max_results,omitempty" jsonschema:"default 50"`
		Ignored   bool   `json:"ignored,omitempty" jsonschema:"also what .gitignore names"`
	}
	return takes(tool{
		name:        "search_files",
		title:       "Search files",
		description: "Find lines in the files of a sandbox.",
		long:        true,
		scope:       auth.ScopeFiles,
		readOnly:    true,
	}, limits{
		"context_lines": between(0, sandbox.MaxContext),
		"max_results":   between(1, sandbox.MaxMatches),
	}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		found, err := s.engine.SearchFiles(ctx, c.principal, in.SandboxID, sandbox.SearchRequest{
			Path: cmp.Or(in.Path, sandbox.WorkDir), Pattern: in.Pattern, Glob: in.Glob, Context: in.Context, Max: in.Max, Ignored: in.Ignored,
		})
		if err != nil {
			return nil, err
		}
		if found.Files == nil {
			found.Files = []sandbox.FoundFile{}
		}
		return answer.New(found, foundText(found))
	})
}

// maxShownPath bounds a path in an answer, in bytes: the text repeats it in each line.
const maxShownPath = 512

// shortName returns the end of a path for models.
func shortName(name string) string {
	if len(name) > maxShownPath {
		name = "…" + strings.ToValidUTF8(name[len(name)-maxShownPath:], "")
	}
	return answer.ShownName(name)
}

// foundText writes an answer as grep does, and the counts after it.
func foundText(f sandbox.Found) string {
	var b strings.Builder
	for i, file := range f.Files {
		name := shortName(file.Path)
		last := 0
		for k, line := range file.Lines {
			if gap := last > 0 && line.Line > last+1; gap || k == 0 && i > 0 && !line.Match {
				b.WriteString("--\n")
			}
			last = line.Line
			format := "%s-%d- %s\n"
			if line.Match {
				format = "%s:%d: %s\n"
			}
			fmt.Fprintf(&b, format, name, line.Line, line.Text)
		}
	}
	fmt.Fprintf(&b, "[%s in %d of %s", number(f.Matches, "matching line", "matching lines"), f.MatchedFiles, number(f.Searched, "file", "files"))
	if f.Binary > 0 {
		fmt.Fprintf(&b, "; left out: %s", number(f.Binary, "binary file", "binary files"))
	}
	if f.Unreadable > 0 {
		fmt.Fprintf(&b, "; not readable: %d", f.Unreadable)
	}
	if f.Omitted > 0 || f.Incomplete {
		b.WriteString("; " + omitted(f.Omitted, "matching lines", f.Cut))
	}
	b.WriteByte(']')
	return b.String()
}

// omitted says what an answer leaves out, and what to do.
func omitted(n int, what string, cut sandbox.Cut) string {
	var parts []string
	if n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s are not shown", n, what))
	}
	if cut.Incomplete {
		parts = append(parts, fmt.Sprintf("%s, and nothing after %s was looked at", answer.ShownName(cut.Reason), answer.ShownName(cut.At)))
	}
	return strings.Join(parts, "; ") + ": use a narrower path, glob or pattern"
}

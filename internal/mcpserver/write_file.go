package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// encodingBase64 is the encoding of binary content.
const encodingBase64 = "base64"

func (s *Server) writeFile() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
		Path      string `json:"path"`
		Content   string `json:"content"`
		Encoding  string `json:"encoding,omitempty" jsonschema:"default utf-8"`
		Append    bool   `json:"append,omitempty"`
	}
	type written struct {
		SandboxID string `json:"sandbox_id"`
		Path      string `json:"path"`
		Bytes     int    `json:"bytes"`
		Note      string `json:"note,omitempty"`
	}
	return takes(tool{
		name:        "write_file",
		title:       "Write a file",
		description: "Write or append to a file in a sandbox. Makes directories; paths are below /data unless absolute.",
		scope:       auth.ScopeFiles,
	}, limits{"encoding": oneOf("utf-8", encodingBase64)}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		data := []byte(in.Content)
		if in.Encoding == encodingBase64 {
			var err error
			if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "content: not base64 as encoding says: %w", err)
			}
		}
		target, err := s.fill(ctx, c, in.SandboxID, func(id string) error {
			return s.engine.WriteFile(ctx, c.principal, id, in.Path, bytes.NewReader(data), in.Append)
		})
		if err != nil {
			return nil, err
		}
		verb := "wrote"
		if in.Append {
			verb = "appended"
		}
		return answer.New(written{target.id, in.Path, len(data), target.note()}, fmt.Sprintf("%s %d bytes to %s%s", verb, len(data), in.Path, target.line()))
	})
}

package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const readFileOutput = `{"type":"object","properties":{` +
	`"path":{"type":"string"},"size":{"type":"integer"},"offset":{"type":"integer"},"next_offset":{"type":"integer"},` +
	`"encoding":{"type":"string"},"content":{"type":"string"}}}`

const defaultReadBytes = 64 << 10

// fileResult is a part of a file. Next is the offset of the next part; zero at
// the end of the file.
type fileResult struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	Offset   int64  `json:"offset"`
	Next     int64  `json:"next_offset,omitempty"`
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

func (s *Server) readFile() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Path      string `json:"path"`
		Offset    int64  `json:"offset,omitempty"`
		Limit     int64  `json:"limit,omitempty" jsonschema:"bytes; default 65536"`
		Encoding  string `json:"encoding,omitempty" jsonschema:"default: base64 unless text"`
	}
	return takes(tool{
		name:        "read_file",
		title:       "Read a file",
		description: "Read a file in a sandbox, or a part of it.",
		output:      readFileOutput,
		long:        true,
		scope:       auth.ScopeFiles,
		readOnly:    true,
	}, limits{
		"offset":   atLeast(0),
		"limit":    between(1, 1048576),
		"encoding": oneOf("utf-8", encodingBase64),
	}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		data, size, err := s.readPart(ctx, c.principal, in.SandboxID, in.Path, in.Offset, cmp.Or(in.Limit, defaultReadBytes))
		if err != nil {
			return nil, err
		}
		r := fileResult{Path: in.Path, Size: size, Offset: in.Offset, Encoding: in.Encoding}
		end := in.Offset + int64(len(data))
		text, isText := wholeRunes(data, end >= size)
		if in.Encoding == "utf-8" && !isText {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "encoding: %s is not UTF-8 from byte %d on", in.Path, in.Offset),
				"read it with encoding base64")
		}
		if in.Encoding == "" {
			r.Encoding = encodingBase64
			if isText {
				r.Encoding = "utf-8"
			}
		}
		if r.Encoding == encodingBase64 {
			r.Content = base64.StdEncoding.EncodeToString(data)
		} else {
			r.Content = string(text)
			end = in.Offset + int64(len(text))
		}
		if end < size {
			r.Next = end
		}
		return answer.New(r, r.text())
	})
}

// text returns the content for models. Further facts follow it in brackets.
func (r fileResult) text() string {
	switch {
	case r.Size == 0:
		return fmt.Sprintf("[%s is empty]", r.Path)
	case r.Content == "":
		return fmt.Sprintf("[%s has %d bytes, none from %d on]", r.Path, r.Size, r.Offset)
	case r.Next > 0:
		return fmt.Sprintf("%s\n[%s: bytes %d to %d of %d; read on at offset %d]", r.Content, r.Encoding, r.Offset, r.Next, r.Size, r.Next)
	case r.Encoding == encodingBase64:
		return fmt.Sprintf("%s\n[base64: %d bytes]", r.Content, r.Size-r.Offset)
	}
	return r.Content
}

// readPart reads at most limit bytes of a file in a sandbox.
func (s *Server) readPart(ctx context.Context, p sandbox.Principal, id, path string, offset, limit int64) ([]byte, int64, error) {
	f, size, err := s.engine.ReadFile(ctx, p, id, path, offset, limit)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, 0, sandbox.Wrap(err, "read "+path+" in sandbox", id)
	}
	return data, size, nil
}

// wholeRunes reports whether data is text, and returns the text. Unless data ends
// the file, it removes an incomplete character at the end.
func wholeRunes(data []byte, last bool) ([]byte, bool) {
	if utf8.Valid(data) {
		return data, true
	}
	if last {
		return nil, false
	}
	for cut := 1; cut < utf8.UTFMax && cut < len(data); cut++ {
		head, tail := data[:len(data)-cut], data[len(data)-cut:]
		if utf8.RuneStart(tail[0]) {
			return head, !utf8.FullRune(tail) && utf8.Valid(head)
		}
	}
	return nil, false
}

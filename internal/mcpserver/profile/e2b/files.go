package e2b

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	pathProperty = `"file_path":{"title":"File Path","type":"string"}`

	listInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"path":{"title":"Path","type":"string","default":"/"}},"required":["session_id"]}`

	readInput = `{"type":"object","properties":{` + sessionProperty + `,` + pathProperty + `},"required":["session_id","file_path"]}`

	writeInput = `{"type":"object","properties":{` + sessionProperty + `,` + pathProperty + `,` +
		`"content":{"title":"Content","type":"string"}},"required":["session_id","file_path","content"]}`

	uploadInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"file_name":{"title":"File Name","type":"string"},` +
		`"file_content":{"title":"File Content","type":"string"},` +
		`"destination_path":{"title":"Destination Path","type":"string","default":"/"}},` +
		`"required":["session_id","file_name","file_content"]}`
)

func (s *server) fileTools() []profile.Tool {
	return []profile.Tool{
		{
			Name:        "list_files",
			Description: "List a directory of a sandbox.",
			Input:       listInput, Scope: auth.ScopeFiles, ReadOnly: true,
			Run: profile.Typed(listInput, s.list),
		},
		{
			Name:        "read_file",
			Description: "Read a file of a sandbox. One that is not text comes in base64, with an encoding that says so.",
			Input:       readInput, Scope: auth.ScopeFiles, ReadOnly: true,
			Run: profile.Typed(readInput, s.read),
		},
		{
			Name:        "write_file",
			Description: "Write a text file in a sandbox. It replaces one that is there.",
			Input:       writeInput, Scope: auth.ScopeFiles,
			Run: profile.Typed(writeInput, s.write),
		},
		{
			Name:        "upload_file",
			Description: "Put a text file into a directory of a sandbox.",
			Input:       uploadInput, Scope: auth.ScopeFiles,
			Run: profile.Typed(uploadInput, s.upload),
		},
	}
}

// An entry is a file in E2B's list format.
type entry struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
}

func (s *server) list(ctx context.Context, c profile.Call, in struct {
	session
	Path *string `json:"path"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	dir := "/"
	if in.Path != nil && *in.Path != "" {
		dir = *in.Path
	}
	files, more, err := s.opts.Engine.ListFiles(ctx, c.Principal, id, dir, 1)
	if err != nil {
		return profile.Result{}, err
	}
	entries := make([]entry, len(files))
	for i, f := range files {
		entries[i] = entry{Name: path.Base(f.Path), Type: "file", Path: f.Path, Size: f.Size}
		if f.Type == sandbox.TypeDirectory {
			entries[i].Type = "dir"
		}
	}
	return profile.JSON(struct {
		Path  string  `json:"path"`
		Files []entry `json:"files"`
		More  bool    `json:"truncated,omitempty"`
	}{dir, entries, more})
}

// maxFile is the largest file that can be read, in bytes.
const maxFile = 4 << 20

// contents reads a whole file of at most maxFile bytes.
func (s *server) contents(ctx context.Context, c profile.Call, id, name string) ([]byte, error) {
	r, size, err := s.opts.Engine.ReadFile(ctx, c.Principal, id, name, 0, maxFile)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if size > int64(len(data)) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "%s has %s, more than can be read at once, %s",
			name, sandbox.FormatBytes(size), sandbox.FormatBytes(maxFile))
	}
	return data, nil
}

func (s *server) read(ctx context.Context, c profile.Call, in struct {
	session
	Path string `json:"file_path"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	data, err := s.contents(ctx, c, id, in.Path)
	if err != nil {
		return profile.Result{}, err
	}
	type file struct {
		Path     string `json:"path"`
		Content  string `json:"content"`
		Encoding string `json:"encoding,omitempty"`
	}
	if !utf8.Valid(data) {
		return profile.JSON(file{in.Path, base64.StdEncoding.EncodeToString(data), "base64"})
	}
	return profile.JSON(file{Path: in.Path, Content: string(data)})
}

type written struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (s *server) write(ctx context.Context, c profile.Call, in struct {
	session
	Path    string `json:"file_path"`
	Content string `json:"content"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	if err := s.opts.Engine.WriteFile(ctx, c.Principal, id, in.Path, strings.NewReader(in.Content), false); err != nil {
		return profile.Result{}, err
	}
	return profile.JSON(written{in.Path, "File written successfully"})
}

func (s *server) upload(ctx context.Context, c profile.Call, in struct {
	session
	Name    string  `json:"file_name"`
	Content string  `json:"file_content"`
	To      *string `json:"destination_path"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	dir := "/"
	if in.To != nil && *in.To != "" {
		dir = *in.To
	}
	full := path.Join(dir, in.Name)
	if err := s.opts.Engine.WriteFile(ctx, c.Principal, id, full, strings.NewReader(in.Content), false); err != nil {
		return profile.Result{}, err
	}
	return profile.JSON(written{full, "File uploaded successfully"})
}

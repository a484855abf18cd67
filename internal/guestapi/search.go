package guestapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These paths answer POSTs of an [EditRequest], a [sandbox.SearchRequest] and a
// [GlobRequest]. They are ours, and guests of earlier versions do not have them.
const (
	PathEdits    = "/edits"
	PathSearches = "/searches"
	PathGlobs    = "/globs"
)

// EditRequest edits a file. All edits are made, or none. The answer is a
// [sandbox.Edited]. An edit that does not apply is of code invalid_argument, and a
// file that changes meanwhile of code aborted; both leave the file as it is.
type EditRequest struct {
	Path    string         `json:"path"`
	RawPath []byte         `json:"rawPath,omitempty"` // takes precedence over Path
	Edits   []sandbox.Edit `json:"edits"`
}

// GlobRequest lists the files below a directory that match a glob, depth levels
// deep; zero is all levels. The answer is a [GlobResponse].
type GlobRequest struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // takes precedence over Path
	Glob    string `json:"glob"`
	Depth   int    `json:"depth,omitempty"`
}

// GlobResponse lists at most [MaxListEntries] entries. Omitted counts the others.
type GlobResponse struct {
	ListDirResponse
	Omitted int         `json:"omitted,omitempty"`
	Cut     sandbox.Cut `json:"cut"`
}

// Listing returns the reply as callers of a sandbox see it.
func (r *GlobResponse) Listing() sandbox.Listing {
	l := sandbox.Listing{Files: make([]sandbox.File, 0, len(r.Entries)), Omitted: r.Omitted, Cut: r.Cut}
	for _, e := range r.Entries {
		l.Files = append(l.Files, e.File())
	}
	return l
}

// UnmarshalJSON bounds the entries, as that of ListDirResponse does.
func (r *GlobResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Omitted int         `json:"omitted"`
		Cut     sandbox.Cut `json:"cut"`
	}
	err := json.Unmarshal(b, &raw)
	if err == nil {
		r.Omitted, r.Cut = raw.Omitted, raw.Cut
		err = r.ListDirResponse.UnmarshalJSON(b)
	}
	return err
}

// maxFound bounds the reply to a search, in bytes. A reply of empty lines, which
// take more memory than on the wire, stays below 50 MB so.
const maxFound = 3 << 20

// maxLines bounds the lines in the reply to a search.
const maxLines = sandbox.MaxMatches * (2*sandbox.MaxContext + 1)

// found is a sandbox.Found that is bounded when it is decoded.
type found sandbox.Found

func (f *found) UnmarshalJSON(b []byte) error {
	if len(b) > maxFound {
		return fmt.Errorf("reply of more than %d bytes to a search", maxFound)
	}
	if err := json.Unmarshal(b, (*sandbox.Found)(f)); err != nil {
		return err
	}
	lines := 0
	for _, file := range f.Files {
		lines += len(file.Lines)
	}
	if lines > maxLines || len(f.Files) > sandbox.MaxMatches {
		return fmt.Errorf("reply of more than %d lines or %d files to a search", maxLines, sandbox.MaxMatches)
	}
	return nil
}

// Edit makes all edits of a file, or none. The error is of kind Invalid if an edit
// does not apply, and Conflict if the file changed meanwhile.
func (c *Client) Edit(ctx context.Context, path string, edits []sandbox.Edit, opts FileOptions) (*sandbox.Edited, error) {
	req := EditRequest{Edits: edits}
	req.Path, req.RawPath = wirePath(path)
	var out sandbox.Edited
	if err := c.callNew(ctx, "edit file", PathEdits, opts.User, &req, &out); err != nil {
		return nil, err
	}
	if len(out.Lines) != len(edits) {
		return nil, lost(ctx, "edit file", errors.New("the reply is not about these edits"))
	}
	return &out, nil
}

// Search searches the files of a sandbox.
func (c *Client) Search(ctx context.Context, r sandbox.SearchRequest, opts FileOptions) (*sandbox.Found, error) {
	var out found
	if !utf8.ValidString(r.Path) {
		return nil, sandbox.Errorf(sandbox.Invalid, "path: is not UTF-8, which a search needs")
	}
	if err := c.callNew(ctx, "search files", PathSearches, opts.User, &r, &out); err != nil {
		return nil, err
	}
	return (*sandbox.Found)(&out), nil
}

// Glob lists the files that match a glob; see [GlobRequest] for the depth.
func (c *Client) Glob(ctx context.Context, path, glob string, depth int, opts FileOptions) (*GlobResponse, error) {
	req := GlobRequest{Glob: glob, Depth: depth}
	req.Path, req.RawPath = wirePath(path)
	var out GlobResponse
	if err := c.callNew(ctx, "list files", PathGlobs, opts.User, &req, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// callNew is call for a path that guests of earlier versions do not have. Their
// answer has status 404 and no JSON, and the error is then of kind Unsupported.
func (c *Client) callNew(ctx context.Context, op, path, user string, in, out any) error {
	err := c.call(ctx, op, path, user, in, out)
	if status, ok := errors.AsType[*statusError](err); ok && status.code == http.StatusNotFound {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s: the sandbox was started by an earlier version of Glovebox, which cannot do this", op),
			"make a new sandbox")
	}
	return err
}

// A statusError is an answer that has no error of the protocol.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d", e.code) }

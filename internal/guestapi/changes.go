package guestapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These paths answer POSTs of a [ChangesRequest], a [DiffRequest] and a
// [BaseRequest]. They are ours, and guests of earlier versions do not have them.
const (
	PathChanges = "/changes"
	PathDiff    = "/diff"
	PathBase    = "/base"
)

// MaxChangesNamed bounds the files that a reply about a run names.
const MaxChangesNamed = 100

// ChangesRequest asks what a run has changed. The answer is a [ChangesResponse].
type ChangesRequest struct {
	Run string `json:"run"` // its tag
	// Hash, if it is not empty, are files of the working directory whose hashes are
	// the answer, instead of the changed files.
	Hash []string `json:"hash,omitempty"`
}

// ChangesResponse names at most [MaxChangesNamed] files. Known is false if the guest
// could not look at all files.
type ChangesResponse struct {
	sandbox.Changes
	Known bool `json:"known"`
	// Hashes are those of the request's files, "" for files without.
	Hashes []string `json:"hashes,omitempty"`
}

// DiffRequest is a [sandbox.DiffRequest] on the wire. The answer is a
// [DiffResponse].
type DiffRequest struct {
	Path    string `json:"path,omitempty"`
	Since   string `json:"since,omitempty"`
	Patch   bool   `json:"patch,omitempty"`
	MaxText int    `json:"maxText"`
	After   []byte `json:"after,omitempty"`
}

// DiffResponse is a [sandbox.Diff] on the wire.
type DiffResponse struct {
	sandbox.Diff
	Bytes []byte `json:"bytes"` // Diff.Text
	Next  []byte `json:"next,omitempty"`
}

// BaseRequest makes the present contents of files their base, for later requests
// without a run. Executable files become executable first.
type BaseRequest struct {
	Files []sandbox.CopiedFile `json:"files"`
}

// MaxBaseFiles bounds the files of a BaseRequest. With the longest paths, it is within
// MaxUnaryRequest.
const MaxBaseFiles = 500

// boundChanges bounds what a guest reports, while it is decoded.
func boundChanges(b []byte, c *sandbox.Changes, most int) error {
	var raw struct {
		Files json.RawMessage `json:"files"`
	}
	err := json.Unmarshal(b, &raw)
	if err == nil {
		c.Files, err = decodeList[sandbox.FileChange](raw.Files, most)
	}
	return err
}

// UnmarshalJSON bounds the lists.
func (r *ChangesResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Omitted  int             `json:"omitted"`
		Created  int             `json:"created"`
		Modified int             `json:"modified"`
		Removed  int             `json:"removed"`
		Known    bool            `json:"known"`
		Hashes   json.RawMessage `json:"hashes"`
	}
	err := json.Unmarshal(b, &raw)
	if err != nil {
		return err
	}
	r.Changes = sandbox.Changes{Omitted: raw.Omitted, Created: raw.Created, Modified: raw.Modified, Removed: raw.Removed}
	r.Known = raw.Known
	if r.Hashes, err = decodeList[string](raw.Hashes, MaxChangesNamed); err != nil {
		return err
	}
	return boundChanges(b, &r.Changes, MaxChangesNamed)
}

// UnmarshalJSON bounds the lists.
func (r *DiffResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Omitted  int             `json:"omitted"`
		Created  int             `json:"created"`
		Modified int             `json:"modified"`
		Removed  int             `json:"removed"`
		Path     string          `json:"path"`
		Bytes    []byte          `json:"bytes"`
		LeftOut  json.RawMessage `json:"left_out"`
		NotShown int             `json:"not_shown"`
		Next     []byte          `json:"next"`
		sandbox.Cut
	}
	err := json.Unmarshal(b, &raw)
	if err != nil {
		return err
	}
	r.Changes = sandbox.Changes{Omitted: raw.Omitted, Created: raw.Created, Modified: raw.Modified, Removed: raw.Removed}
	r.Diff.Path, r.NotShown, r.Cut, r.Bytes, r.Next = raw.Path, raw.NotShown, raw.Cut, raw.Bytes, raw.Next
	if r.LeftOut, err = decodeList[sandbox.LeftOut](raw.LeftOut, sandbox.MaxDiffNames); err != nil {
		return err
	}
	return boundChanges(b, &r.Changes, sandbox.MaxDiffNames)
}

// Changes returns what a run has changed, or hashes of files.
func (c *Client) Changes(ctx context.Context, req ChangesRequest) (*ChangesResponse, error) {
	var out ChangesResponse
	if err := c.callNew(ctx, "find changes", PathChanges, sandbox.Root, &req, &out); err != nil {
		return nil, err
	}
	if len(out.Hashes) != len(req.Hash) {
		return nil, lost(ctx, "find changes", errors.New("the reply is not about these files"))
	}
	return &out, nil
}

// Diff returns the changes of files.
func (c *Client) Diff(ctx context.Context, r sandbox.DiffRequest) (sandbox.Diff, error) {
	const op = "show changes"
	if !utf8.ValidString(r.Path) {
		return sandbox.Diff{}, sandbox.Errorf(sandbox.Invalid, "path: is not UTF-8")
	}
	req := DiffRequest{Path: r.Path, Since: r.Since, Patch: r.Patch, MaxText: r.MaxText, After: []byte(r.After)}
	var out DiffResponse
	if err := c.callNew(ctx, op, PathDiff, sandbox.Root, &req, &out); err != nil {
		return sandbox.Diff{}, err
	}
	if len(out.Bytes) > r.MaxText || !utf8.Valid(out.Bytes) {
		return sandbox.Diff{}, lost(ctx, op, fmt.Errorf("the reply has a text of %d bytes, or one that is not UTF-8", len(out.Bytes)))
	}
	out.Text, out.Diff.Next = string(out.Bytes), string(out.Next)
	return out.Diff, nil
}

// SetBase makes the present contents of files their base; see [BaseRequest].
func (c *Client) SetBase(ctx context.Context, files []sandbox.CopiedFile) error {
	for len(files) > 0 {
		n := min(len(files), MaxBaseFiles)
		if err := c.callNew(ctx, "keep copied files", PathBase, sandbox.Root, &BaseRequest{Files: files[:n]}, nil); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

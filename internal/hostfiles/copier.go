package hostfiles

import (
	"context"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Sandboxes are the sandboxes that a [Copier] copies from and to. The engine
// implements it.
type Sandboxes interface {
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, truncated bool, err error)
	ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (r io.ReadCloser, size int64, err error)
	WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error
	MakeDir(ctx context.Context, p sandbox.Principal, id, path string) error
	// SetBase makes the contents of copied files the base of their later changes, and
	// files executable. The error is of kind Unsupported if a sandbox cannot.
	SetBase(ctx context.Context, p sandbox.Principal, id string, files []sandbox.CopiedFile) error
	// Start and Wait run the program that makes links.
	Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error)
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
}

// A Copier copies files between sandboxes and this machine. It is safe for
// concurrent use.
type Copier struct {
	Sandboxes Sandboxes
	// Allowed are the allowed directories of this machine.
	Allowed *Directories
	// Anywhere allows every path instead. It is for the command line, whose user
	// has direct access to the files anyway.
	Anywhere bool
	// WorkspaceBytes is the quota of a workspace; 0 means that there is none.
	WorkspaceBytes int64
}

// Limits of one copy.
const (
	maxCopyFiles = 200_000
	maxCopyDepth = 64
)

// place opens the allowed directory that contains a path of this machine, and
// returns the rest of the path. find looks up the path. The caller calls done.
func (h *Copier) place(p string, find func(*Directories, string) (*safepath.Dir, string, error)) (d *safepath.Dir, rest string, done func(), err error) {
	if p, err = hostPath(p); err != nil {
		return nil, "", nil, err
	}
	if h.Anywhere {
		d, err := safepath.OpenDir(filepath.Dir(p))
		if err != nil {
			return nil, "", nil, hostError(err)
		}
		return d, filepath.Base(p), func() { d.Close() }, nil
	}
	d, rest, err = find(h.Allowed, p)
	if err != nil {
		return nil, "", nil, sandbox.Wrap(err, "host_path", "")
	}
	return d, rest, func() {}, nil
}

// hostPath parses a path of this machine: an absolute path, or a file URL.
func hostPath(p string) (string, error) {
	if u, err := url.Parse(p); err == nil && u.Scheme == "file" {
		p = u.Path
		if len(p) > 2 && p[0] == '/' && p[2] == ':' { // file:///C:/dir
			p = p[1:]
		}
	}
	p = filepath.FromSlash(p)
	if strings.ContainsRune(p, 0) || len(p) > safepath.MaxName {
		return "", sandbox.Errorf(sandbox.Invalid, "host_path: %s is not a path", safepath.Show(p))
	}
	if !filepath.IsAbs(p) {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "host_path: %s is not absolute", safepath.Show(p)), "write the whole path")
	}
	return filepath.Clean(p), nil
}

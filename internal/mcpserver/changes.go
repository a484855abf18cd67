package mcpserver

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Files gives the files of workspaces URLs. There are none without a server
// for HTTP.
type Files interface {
	// FileBase returns the URL below which the files of a sandbox's workspace
	// are, "" if it has none.
	FileBase(ctx context.Context, p sandbox.Principal, sandboxID string) (string, error)
	// SignedURL returns a URL by which method, GET or PUT, may be used on one
	// file for a while.
	SignedURL(ctx context.Context, p sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error)
}

// Bounds on what an answer has of files that changed, besides their names.
const (
	maxFileLinks    = 20
	maxFilePictures = 4
	maxFilePicture  = 4 << 20 // one that is looked at
)

// A changedFile is a file that a run changed.
type changedFile struct {
	sandbox.FileChange
	URL string `json:"url,omitempty"`
}

// addChanges adds what a run changed in its workspace: the names of files and
// their URLs, links to them, and the pictures among them that the run made.
func (s *Server) addChanges(ctx context.Context, c call, run sandbox.Run, res *runResult) {
	changes := run.Changes
	if changes == nil || len(changes.Files) == 0 {
		return
	}
	base := ""
	if s.opts.Files != nil {
		base, _ = s.opts.Files.FileBase(ctx, c.principal, run.SandboxID) // without, there are no URLs
	}
	res.changes = changes
	pictures, pixels := maxFilePictures, maxPictureSize
	for _, f := range changes.Files {
		out := changedFile{FileChange: f}
		if f.Change == sandbox.FileRemoved || strings.ContainsRune(f.Path, '\uFFFD') {
			res.Files = append(res.Files, out)
			continue
		}
		kind := mime.TypeByExtension(path.Ext(f.Path))
		uri := fileURI(run.SandboxID, sandbox.WorkDir+"/"+f.Path)
		if base != "" {
			out.URL = base + "/" + (&url.URL{Path: f.Path}).EscapedPath()
			uri = out.URL
		}
		res.Files = append(res.Files, out)
		if pictures > 0 && isPicture(kind) && f.Size > 0 && f.Size <= maxFilePicture {
			if kind, data, ok := s.readPicture(ctx, c, run.SandboxID, f, kind); ok && len(data) <= pixels {
				pictures--
				pixels -= len(data)
				res.shown = append(res.shown, &mcp.ImageContent{MIMEType: kind, Data: data})
			}
		}
		if len(res.shown) < maxFileLinks {
			size := f.Size
			res.shown = append(res.shown, &mcp.ResourceLink{URI: uri, Name: f.Path, MIMEType: kind, Size: &size})
		}
	}
}

// readPicture reads a picture that a run made, as small as it has to be.
func (s *Server) readPicture(ctx context.Context, c call, sandboxID string, f sandbox.FileChange, kind string) (string, []byte, bool) {
	r, _, err := s.engine.ReadFile(ctx, c.principal, sandboxID, sandbox.WorkDir+"/"+f.Path, 0, maxFilePicture)
	if err != nil {
		return "", nil, false
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFilePicture))
	if err != nil {
		return "", nil, false
	}
	return fitPicture(kind, data)
}

// fileURI is the resource of a file in a sandbox.
func fileURI(sandboxID, path string) string {
	return "sandbox://" + sandboxID + "/files" + (&url.URL{Path: path}).EscapedPath()
}

// changesText says for a model what changed.
func changesText(c *sandbox.Changes) string {
	if c == nil || c.Created+c.Modified+c.Removed == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "files: %d created, %d modified, %d removed:", c.Created, c.Modified, c.Removed)
	const most = 10
	for i, f := range c.Files {
		if i == most {
			break
		}
		mark := map[sandbox.Change]string{sandbox.FileCreated: "+", sandbox.FileModified: "~", sandbox.FileRemoved: "-"}[f.Change]
		fmt.Fprintf(&b, " %s%s", mark, f.Path)
	}
	if total := c.Created + c.Modified + c.Removed; total > most {
		fmt.Fprintf(&b, " and %d more", total-most)
	}
	return b.String() + "\n"
}

package mcpserver

import (
	"context"
	"fmt"
	"mime"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Files makes URLs for the files of workspaces. It needs an HTTP server.
type Files interface {
	// FileLinks returns a function that makes signed URLs, which expire, for the
	// files of a sandbox's workspace. The function is nil if the sandbox has no
	// workspace.
	FileLinks(ctx context.Context, p sandbox.Principal, sandboxID string) (link func(name string) string, err error)
	// SignedURL returns a URL that allows method, GET or PUT, on one file until
	// the returned time.
	SignedURL(ctx context.Context, p sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error)
}

// Bounds on the links and pictures of changed files in an answer.
const (
	maxFileLinks    = 20
	maxFilePictures = 4
)

// A changedFile is a file that a run changed.
type changedFile struct {
	sandbox.FileChange
	URL string `json:"url,omitempty"`
}

// addChanges adds the files that a run changed in its workspace: their names,
// URLs and links. It also adds the pictures that the run made, if there are
// previews of them.
func (s *Server) addChanges(ctx context.Context, c call, run sandbox.Run, previews map[string]sandbox.Preview, res *runResult) {
	changes := run.Changes
	if changes == nil || len(changes.Files) == 0 {
		return
	}
	var link func(string) string
	if s.opts.Files != nil {
		link, _ = s.opts.Files.FileLinks(ctx, c.principal, run.SandboxID) // without them, the answer has no URLs
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
		if link != nil {
			out.URL = link(f.Path)
			uri = out.URL
		}
		res.Files = append(res.Files, out)
		switch p, ok := previews[f.Path]; {
		case !ok:
		case p.Why != "":
			res.unshown += fmt.Sprintf("%s is not shown: %s\n", shownName(f.Path), p.Why)
		case pictures > 0 && len(p.Data) <= pixels:
			pictures--
			pixels -= len(p.Data)
			res.shown = append(res.shown, &mcp.ImageContent{MIMEType: p.MIME, Data: p.Data})
		}
		if len(res.shown) < maxFileLinks {
			size := f.Size
			res.shown = append(res.shown, &mcp.ResourceLink{URI: uri, Name: shownName(f.Path), MIMEType: kind, Size: &size})
		}
	}
}

// shownName returns the name of a file for models. Programs choose the names, so
// names with unprintable characters are quoted: a name cannot begin a line of its
// own. Names with quotes are also quoted, to be unambiguous.
func shownName(name string) string {
	for _, r := range name {
		if !strconv.IsPrint(r) || r == '"' {
			return strconv.Quote(name)
		}
	}
	return name
}

// fileURI returns the URI of the resource for a file in a sandbox.
func fileURI(sandboxID, path string) string {
	return "sandbox://" + sandboxID + "/files" + (&url.URL{Path: path}).EscapedPath()
}

// changesText lists the changes for models.
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
		fmt.Fprintf(&b, " %s%s", mark, shownName(f.Path))
	}
	if total := c.Created + c.Modified + c.Removed; total > most {
		fmt.Fprintf(&b, " and %d more", total-most)
	}
	return b.String() + "\n"
}

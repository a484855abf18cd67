package httpserver

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Workspaces are the workspaces whose files a [FileSigner] signs URLs of. The
// engine implements it.
type Workspaces interface {
	// Get returns a principal's sandbox.
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	// WorkspaceOf returns the ID and the handle of a principal's workspace.
	WorkspaceOf(ctx context.Context, p sandbox.Principal, name string) (id, handle string, err error)
}

// A FileSigner signs URLs of files, which a server with [Files] serves.
type FileSigner struct {
	workspaces Workspaces
	signer     auth.Signer
	base       string // URL of the server, without a slash at its end
}

// NewFileSigner returns a signer for the files of a server with that URL.
func NewFileSigner(w Workspaces, signer auth.Signer, base string) *FileSigner {
	return &FileSigner{w, signer, strings.TrimSuffix(base, "/")}
}

// Verify checks the query of a signed URL, as [Files] requires it.
func (s *FileSigner) Verify(method, handle, name string, query url.Values) (signature []byte, expires time.Time, err error) {
	return s.signer.Verify(method, handle, name, query)
}

// SignedURL returns a URL that allows method, GET or PUT, on a file of a
// principal's workspace for the time good. If name is [ArchiveName], it allows
// all files together, as a tar archive. The error wraps [sandbox.Invalid] if good
// or name is not valid.
func (s *FileSigner) SignedURL(ctx context.Context, p sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error) {
	expires, err := s.signer.Expiry(good)
	if err != nil {
		return "", time.Time{}, err
	}
	name, err = safepath.Clean(name)
	if err != nil {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "path: %w", err)
	}
	_, handle, err := s.workspaces.WorkspaceOf(ctx, p, workspace)
	if err != nil {
		return "", time.Time{}, err
	}
	expires = expires.Truncate(time.Microsecond)
	return s.url(handle, name, method, expires), expires, nil
}

// linkTime is how long links to files in results are valid.
const linkTime = time.Hour

// FileLinks returns a function from the name of a file in the sandbox's
// workspace to a URL. The URLs allow reading for linkTime. The function is nil
// if the sandbox has no workspace.
func (s *FileSigner) FileLinks(ctx context.Context, p sandbox.Principal, sandboxID string) (func(name string) string, error) {
	sb, err := s.workspaces.Get(ctx, p, sandboxID)
	if err != nil || sb.Workspace == "" {
		return nil, err
	}
	_, handle, err := s.workspaces.WorkspaceOf(ctx, p, sb.Workspace)
	if err != nil {
		return nil, err
	}
	expires, err := s.signer.Expiry(linkTime)
	if err != nil {
		return nil, err
	}
	expires = expires.Truncate(time.Microsecond)
	return func(name string) string { return s.url(handle, name, http.MethodGet, expires) }, nil
}

// url returns the signed URL of a file, or of an archive.
func (s *FileSigner) url(handle, name, method string, expires time.Time) string {
	target := handle + "/" + (&url.URL{Path: name}).EscapedPath()
	if name == ArchiveName {
		target = handle + archiveExt
	}
	return s.base + filesPath + target + "?" + s.signer.Sign(method, handle, name, expires)
}

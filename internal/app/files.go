package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// files implements the files over HTTP: the engine opens them, auth signs URLs,
// and the store records which signatures were used.
type files struct {
	*engine.Engine
	store  *store.Store
	signer auth.Signer
	base   string // URL of the server, without a slash at its end
}

var _ httpserver.Files = (*files)(nil)

func (s *System) files(base string) *files {
	return &files{
		Engine: s.Engine,
		store:  s.store,
		signer: auth.Signer{Key: s.workspaces.Key("signed URLs")},
		base:   strings.TrimSuffix(base, "/"),
	}
}

// servedFile is an open file with an entity tag.
type servedFile struct {
	*engine.OpenFile
}

// Stat returns the file's info from when it was opened.
func (f servedFile) Stat() (fs.FileInfo, error) { return f.Info, nil }

// Tag returns a hash of the file's version. A program cannot restore an old
// version.
func (f servedFile) Tag() string {
	sum := sha256.Sum256([]byte(f.Version))
	return hex.EncodeToString(sum[:16])
}

func (f *files) OpenFile(ctx context.Context, idOrHandle, name string) (httpserver.File, error) {
	open, err := f.Engine.OpenFile(ctx, idOrHandle, name)
	if err != nil {
		return nil, err
	}
	return servedFile{open}, nil
}

func (f *files) Verify(method, handle, name string, query url.Values) ([]byte, time.Time, error) {
	return f.signer.Verify(method, handle, name, query)
}

func (f *files) Spend(ctx context.Context, signature []byte, expires time.Time) (bool, error) {
	return f.store.SpendSignature(ctx, signature, expires)
}

// SignedURL returns a URL that allows method, GET or PUT, on a file of a
// principal's workspace for the time good. If name is ".", it allows all files
// together, as a tar archive. The error wraps [sandbox.Invalid] if good or name
// is not valid.
func (f *files) SignedURL(ctx context.Context, p sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error) {
	if good <= 0 || good > auth.MaxSigned {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "expires_seconds: %v is not between a second and %v", good, auth.MaxSigned)
	}
	name, err := safepath.Clean(name)
	if err != nil {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "path: %w", err)
	}
	_, handle, err := f.WorkspaceOf(ctx, p, workspace)
	if err != nil {
		return "", time.Time{}, err
	}
	expires := time.Now().Add(good).Truncate(time.Microsecond)
	return f.signed(handle, name, method, expires), expires, nil
}

func (f *files) signed(handle, name, method string, expires time.Time) string {
	query := f.signer.Sign(method, handle, name, expires)
	target := handle + "/" + escapePath(name)
	if name == httpserver.ArchiveName {
		target = handle + ".tar"
	}
	return f.base + "/files/" + target + "?" + query
}

// linkTime is how long links to files in results are valid.
const linkTime = time.Hour

// FileLinks returns a function from the name of a file in the sandbox's
// workspace to a URL. The URLs allow reading for linkTime. The function is nil
// if the sandbox has no workspace.
func (f *files) FileLinks(ctx context.Context, p sandbox.Principal, sandboxID string) (func(name string) string, error) {
	sb, err := f.Get(ctx, p, sandboxID)
	if err != nil || sb.Workspace == "" {
		return nil, err
	}
	_, handle, err := f.WorkspaceOf(ctx, p, sb.Workspace)
	if err != nil {
		return nil, err
	}
	expires := time.Now().Add(linkTime).Truncate(time.Microsecond)
	return func(name string) string { return f.signed(handle, name, http.MethodGet, expires) }, nil
}

// escapePath escapes a name for a URL.
func escapePath(name string) string { return (&url.URL{Path: name}).EscapedPath() }

// fileBase returns the URL at which clients reach a server that listens at addr:
// the configured URL, or a guess.
func (s *System) fileBase(addr net.Addr) string {
	c := s.opts.Config.Server
	if c.PublicURL != "" {
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// files implements the files over HTTP: the engine opens them, and the store
// records which signatures were used.
type files struct {
	*engine.Engine
	*httpserver.FileSigner
	store *store.Store
}

var _ httpserver.Files = (*files)(nil)

// files returns the files of a server at that URL.
func (s *System) files(base string) *files {
	signer := httpserver.NewFileSigner(s.Engine, auth.Signer{Key: s.workspaces.Key("signed URLs")}, base)
	return &files{s.Engine, signer, s.store}
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

// OpenFile implements [httpserver.Files].
func (f *files) OpenFile(ctx context.Context, idOrHandle, name string) (httpserver.File, error) {
	open, err := f.Engine.OpenFile(ctx, idOrHandle, name)
	if err != nil {
		return nil, err
	}
	return servedFile{open}, nil
}

// Spend implements [httpserver.Files].
func (f *files) Spend(ctx context.Context, signature []byte, expires time.Time) (bool, error) {
	return f.store.SpendSignature(ctx, signature, expires)
}

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

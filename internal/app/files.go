package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// files implements the files over HTTP: the engine opens them, and the store
// records which signatures were used.
type files struct {
	*audited.Engine
	*httpserver.FileSigner
	store *store.Store
}

var _ httpserver.Files = (*files)(nil)

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

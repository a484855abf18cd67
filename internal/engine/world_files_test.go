package engine

import (
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (g *worldGuest) Stat(_ context.Context, path string, _ guestapi.FileOptions) (*guestapi.Entry, error) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	data, ok := g.b.files[path]
	if !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: no such file", path)
	}
	return &guestapi.Entry{Path: path, Type: guestapi.TypeFile, Size: int64(len(data))}, nil
}

func (g *worldGuest) ListDir(context.Context, string, int, guestapi.FileOptions) (*guestapi.ListDirResponse, error) {
	return &guestapi.ListDirResponse{}, nil
}

func (g *worldGuest) MakeDir(context.Context, string, guestapi.FileOptions) error { return nil }

func (g *worldGuest) Remove(_ context.Context, path string, _ guestapi.FileOptions) error {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return err
	}
	maps.DeleteFunc(g.b.files, func(name string, _ []byte) bool {
		return name == path || len(name) > len(path) && name[:len(path)+1] == path+"/"
	})
	return nil
}

func (g *worldGuest) Read(ctx context.Context, path string, _, _ int64, _ guestapi.FileOptions) (io.ReadCloser, int64, error) {
	g.b.mu.Lock()
	hung, stuck := g.b.hung, g.b.stuck
	g.b.mu.Unlock()
	if stuck {
		<-g.ctx.Done()
		return nil, 0, errBroken
	}
	if hung {
		<-ctx.Done()
		return nil, 0, sandbox.Errorf(sandbox.Unavailable, "read file: %w", ctx.Err())
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, 0, err
	}
	data, ok := g.b.files[path]
	if !ok {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "%s: no such file", path)
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

func (g *worldGuest) Sixel(context.Context, sandbox.Base64, string, int) ([]byte, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "no such procedure")
}

func (g *worldGuest) Preview(context.Context, string, string, guestapi.FileOptions) ([]byte, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "no such procedure")
}

func (g *worldGuest) Write(_ context.Context, path string, r io.Reader, _ guestapi.WriteOptions) (*guestapi.WriteInfo, error) {
	if space := g.b.at(path); space != nil {
		_, err := io.Copy(spaceWriter{space}, r)
		return &guestapi.WriteInfo{Path: path}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if err := g.checkLocked(); err != nil {
		return nil, err
	}
	g.b.files[path] = data
	return &guestapi.WriteInfo{Path: path}, nil
}

// RoundTrip answers with the request's headers and body, and does not end the
// answer before the request's context ends if the path is /hold.

func (g *worldGuest) Edit(context.Context, string, []sandbox.Edit, guestapi.FileOptions) (*sandbox.Edited, error) {
	return &sandbox.Edited{}, nil
}

func (g *worldGuest) Search(context.Context, sandbox.SearchRequest, guestapi.FileOptions) (*sandbox.Found, error) {
	return &sandbox.Found{}, nil
}

func (g *worldGuest) Glob(context.Context, string, string, int, guestapi.FileOptions) (*guestapi.GlobResponse, error) {
	return &guestapi.GlobResponse{}, nil
}

// withinWorkspace returns the name in the workspace of a path in a sandbox.
func withinWorkspace(p string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path.Clean(request.Absolute(p)), sandbox.WorkDir+"/")
	return name, ok && name != ""
}

package app

import (
	"context"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/hostfiles"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// copier returns the copier for clients, which reaches the allowed directories.
func (s *System) copier() *hostfiles.Copier {
	return &hostfiles.Copier{Sandboxes: s.Engine, Allowed: s.host, WorkspaceBytes: int64(s.opts.Config.Workspace.Size)}
}

// hostTools returns the copier for the tools of a client on this machine, or nil
// if there is no allowed directory. The tools would only fail then.
func (s *System) hostTools() mcpserver.HostFiles {
	if s.host == nil || !s.host.Any() {
		return nil
	}
	return s.copier()
}

// CopyIn copies a file or directory of this machine into any principal's
// sandbox.
func (s *System) CopyIn(ctx context.Context, from, sandboxID, to string, ignore bool) (sandbox.Copied, error) {
	h, p, from, err := s.operatorCopier(ctx, sandboxID, from)
	if err != nil {
		return sandbox.Copied{}, err
	}
	return h.CopyIn(ctx, p, from, sandboxID, to, ignore, func(sandbox.Copied) {})
}

// CopyOut copies a file or directory of any principal's sandbox to this machine.
func (s *System) CopyOut(ctx context.Context, sandboxID, from, to string) (sandbox.Copied, error) {
	h, p, to, err := s.operatorCopier(ctx, sandboxID, to)
	if err != nil {
		return sandbox.Copied{}, err
	}
	return h.CopyOut(ctx, p, sandboxID, from, to, func(sandbox.Copied) {})
}

// Diff returns the changes of files in any principal's sandbox.
func (s *System) Diff(ctx context.Context, sandboxID string, r sandbox.DiffRequest) (sandbox.Diff, error) {
	rec, err := s.store.Sandbox(ctx, sandboxID)
	if err != nil {
		return sandbox.Diff{}, err
	}
	return s.Engine.Diff(ctx, rec.Principal, sandboxID, r)
}

// operatorCopier returns a copier that reaches every path, the principal of a
// sandbox, and the absolute form of a path of this machine.
func (s *System) operatorCopier(ctx context.Context, sandboxID, host string) (*hostfiles.Copier, sandbox.Principal, string, error) {
	rec, err := s.store.Sandbox(ctx, sandboxID)
	if err != nil {
		return nil, "", "", err
	}
	host, err = filepath.Abs(host)
	c := s.copier()
	c.Anywhere = true
	return c, rec.Principal, host, err
}

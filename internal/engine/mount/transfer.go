package mount

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Export writes the workspace to w as a tar archive. A sparse file counts with
// its full size.
func (m *Mount) Export(ctx context.Context, w io.Writer) error {
	_, err := m.ws.Export(ctx, w, exportFactor*m.set.opts.Quota.Bytes)
	return err
}

// exportFactor is how many times its quota a workspace may take when it is
// exported, with the holes of sparse files filled.
const exportFactor = 4

// importTurn waits until the principal has no other import in progress. The
// size of an archive is unknown before its end, so two imports could each fill
// the rest of the quota. The caller must call done.
func (s *Set) importTurn(ctx context.Context, p sandbox.Principal) (done func(), err error) {
	for {
		over := make(chan struct{})
		s.mu.Lock()
		other := s.importing[p]
		if other == nil {
			s.importing[p] = over
		}
		s.mu.Unlock()
		if other == nil {
			return func() {
				s.mu.Lock()
				delete(s.importing, p)
				s.mu.Unlock()
				close(over)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ctx.Done():
			return nil, request.Closed()
		}
	}
}

// Import unpacks a tar archive, which may be compressed by gzip, into the
// workspace: all files of the archive or none.
func (m *Mount) Import(ctx context.Context, r io.Reader) error {
	done, err := m.set.importTurn(ctx, m.rec.Principal)
	if err != nil {
		return err
	}
	defer done()
	left, err := m.leftAgain(ctx, func(left sandbox.WorkspaceUsage) bool { return left.Bytes > 0 })
	if err != nil {
		return err
	}
	if left.Bytes == 0 {
		return errFull(m)
	}
	defer m.transfer()()
	n, err := m.ws.Import(ctx, r, left.Bytes, left.Files)
	added := sandbox.WorkspaceUsage{Bytes: n.Bytes, Files: int64(n.Files + n.Directories + n.Links)}
	if err != nil {
		if added.Files > 0 {
			_ = m.tally(ctx, added) // a part of the files may be there
		}
		return err
	}
	m.Changed()
	m.tellCopies(nil)
	return m.tally(ctx, added)
}

// Read opens a file of the workspace, which can be read until ctx ends.
func (m *Mount) Read(ctx context.Context, name string) (*workspace.File, error) {
	return m.ws.Read(ctx, name)
}

// Put writes all of r to a file within the quota, by an atomic rename at the
// end. size is the number of bytes to come, or -1 if that is unknown.
func (m *Mount) Put(ctx context.Context, name string, r io.Reader, size int64) (int64, error) {
	q, err := m.Bounded(ctx, r, size, true)
	if err != nil {
		return 0, err
	}
	defer q.Done() // after the file was counted
	defer m.transfer()()
	n, err := m.ws.Write(ctx, name, q)
	if err != nil {
		return 0, err
	}
	if size >= 0 && n != size {
		return n, sandbox.Errorf(sandbox.Internal, "%d bytes arrived, and %d were announced", n, size)
	}
	m.Changed()
	m.tellCopies(nil)
	// The file is there, even if the count fails.
	_ = m.tally(ctx, sandbox.WorkspaceUsage{Bytes: n, Files: int64(1 + strings.Count(name, "/"))})
	return n, nil
}

// Measure counts the workspace and records its usage.
func (m *Mount) Measure(ctx context.Context) error {
	s, err := m.look(ctx)
	if err != nil {
		return m.tooMuch(err)
	}
	m.note(&s.Usage)
	return nil
}

// CopyWorkspace copies a workspace of p to one that does not exist yet. The error is of
// kind Conflict if it does. Files that change meanwhile may be copied as they were
// before or after.
func (s *Set) CopyWorkspace(ctx context.Context, p sandbox.Principal, from, to string) (err error) {
	if err := request.CheckWorkspaceName(to); err != nil {
		return err
	}
	if _, err := s.Named(ctx, p, to); !errors.Is(err, sandbox.NotFound) {
		if err == nil {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "workspace: %s exists already, and a copy would mix with its files", excerpt.Quote(to)), "name a new one")
		}
		return err
	}
	source, err := s.Mount(ctx, p, from, false)
	if err != nil {
		return err
	}
	defer source.Release()
	target, err := s.Mount(ctx, p, to, true)
	if err != nil {
		return err
	}
	defer func() {
		target.Release()
		if err != nil {
			if _, rerr := s.Remove(context.WithoutCancel(ctx), target.Record(), false); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
	}()
	r, w := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := source.Export(ctx, w)
		w.CloseWithError(err)
		exported <- err
	}()
	err = target.Import(ctx, r)
	r.Close() // ends an export whose import has failed
	return errors.Join(err, <-exported)
}

package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Paths of files may be relative to the working directory. Files are read and
// written as the sandbox's user.

// ReadFile opens a file of a sandbox at offset, for length bytes, or to the end
// if length is negative. size is the size of the whole file in bytes. The
// caller must close the reader; the sandbox stays awake until then. The error
// is of kind NotFound if there is no such file.
func (e *Engine) ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (r io.ReadCloser, size int64, err error) {
	const op = "read file"
	if offset < 0 {
		return nil, 0, sandbox.Wrap(request.Invalid("offset: %d is negative", offset), op, "")
	}
	b, release, err := e.useFile(ctx, p, id, path)
	if err != nil {
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	if err := b.copy.In(ctx); err != nil {
		release()
		return nil, 0, sandbox.Wrap(b.Explain(ctx, err), op, "")
	}
	r, size, err = b.guest.Read(ctx, request.Absolute(path), offset, length, guestapi.FileOptions{})
	if err != nil {
		err = b.fileError(ctx, err, path)
		release()
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	return &heldReader{r, release}, size, nil
}

// heldReader ends a use when it is closed.
type heldReader struct {
	io.ReadCloser
	release func()
}

func (r *heldReader) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

// WriteFile writes all of r to a file of a sandbox and creates missing parent
// directories. Without appendTo, the file keeps its contents until all of r has
// arrived in the sandbox, and is then written in place.
func (e *Engine) WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error {
	return e.changeFile(ctx, p, id, path, "write file", func(b *liveSandbox) error {
		r, done, err := b.mount.Bound(ctx, path, r)
		if err != nil {
			return err
		}
		defer done()
		_, err = b.guest.Write(ctx, request.Absolute(path), r, guestapi.WriteOptions{Append: appendTo})
		return err
	})
}

// ListFiles lists a directory of a sandbox. Depth 1 or 0 lists its own entries,
// depth 2 also the entries of its subdirectories, and so on. truncated means
// that there are more entries. Symbolic links are not followed.
func (e *Engine) ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, truncated bool, err error) {
	if depth < 0 || depth > request.MaxDepth {
		return nil, false, sandbox.Wrap(request.Invalid("depth: %d is not between 0 and %d", depth, request.MaxDepth), "list files", "")
	}
	if path == "" {
		path = sandbox.WorkDir
	}
	err = e.doFile(ctx, p, id, path, "list files", func(b *liveSandbox) error {
		resp, err := b.guest.ListDir(ctx, request.Absolute(path), depth, guestapi.FileOptions{})
		if err != nil {
			return err
		}
		files = make([]sandbox.File, 0, len(resp.Entries))
		for _, entry := range resp.Entries {
			files = append(files, entry.File())
		}
		truncated = resp.Truncated
		return nil
	})
	return files, truncated, err
}

// EditFile makes all edits of a file, or none. The error is of kind Invalid if an
// edit does not apply, and Conflict if a program changed the file meanwhile.
func (e *Engine) EditFile(ctx context.Context, p sandbox.Principal, id, path string, edits []sandbox.Edit) (done sandbox.Edited, err error) {
	const op = "edit file"
	if err := request.CheckEdits(edits); err != nil {
		return done, sandbox.Wrap(err, op, "")
	}
	err = e.changeFile(ctx, p, id, path, op, func(b *liveSandbox) error {
		// A full workspace refuses it. The bytes are counted later: they are few.
		_, end, err := b.mount.Bound(ctx, path, http.NoBody)
		if err != nil {
			return err
		}
		defer end()
		d, err := b.guest.Edit(ctx, request.Absolute(path), edits, guestapi.FileOptions{})
		if err == nil {
			done = *d
		}
		return err
	})
	return done, err
}

// SearchFiles searches the files of a sandbox; see [sandbox.SearchRequest].
func (e *Engine) SearchFiles(ctx context.Context, p sandbox.Principal, id string, r sandbox.SearchRequest) (f sandbox.Found, err error) {
	if err := request.CheckSearch(&r); err != nil {
		return f, sandbox.Wrap(err, "search files", "")
	}
	err = e.doFile(ctx, p, id, r.Path, "search files", func(b *liveSandbox) error {
		found, err := b.guest.Search(ctx, r, guestapi.FileOptions{})
		if err == nil {
			f = *found
		}
		return err
	})
	return f, err
}

// GlobFiles lists the files below a directory that match a glob. Depth 0 is every
// level.
func (e *Engine) GlobFiles(ctx context.Context, p sandbox.Principal, id, path, glob string, depth int) (l sandbox.Listing, err error) {
	if err := request.CheckGlob(glob, depth); err != nil {
		return l, sandbox.Wrap(err, "list files", "")
	}
	path = cmp.Or(path, sandbox.WorkDir)
	err = e.doFile(ctx, p, id, path, "list files", func(b *liveSandbox) error {
		resp, err := b.guest.Glob(ctx, request.Absolute(path), glob, depth, guestapi.FileOptions{})
		if err == nil {
			l = resp.Listing()
		}
		return err
	})
	return l, err
}

// Diff returns the changes of a sandbox's files; see [sandbox.DiffRequest].
func (e *Engine) Diff(ctx context.Context, p sandbox.Principal, id string, r sandbox.DiffRequest) (d sandbox.Diff, err error) {
	if err := request.CheckDiff(&r); err != nil {
		return d, err
	}
	err = e.doFile(ctx, p, id, cmp.Or(r.Path, sandbox.WorkDir), "show changes", func(b *liveSandbox) error {
		d, err = b.guest.Diff(ctx, r)
		return request.ExplainDiff(&r, err)
	})
	return d, err
}

// SetBase makes copied files the base of their changes; see [guestapi.BaseRequest].
func (e *Engine) SetBase(ctx context.Context, p sandbox.Principal, id string, files []sandbox.CopiedFile) error {
	return e.changeFile(ctx, p, id, sandbox.WorkDir, "keep copied files", func(b *liveSandbox) error { return b.guest.SetBase(ctx, files) })
}

// StatFile describes a file of a sandbox. It does not follow a symbolic link.
func (e *Engine) StatFile(ctx context.Context, p sandbox.Principal, id, path string) (f sandbox.File, err error) {
	err = e.doFile(ctx, p, id, path, "stat file", func(b *liveSandbox) error {
		entry, err := b.guest.Stat(ctx, request.Absolute(path), guestapi.FileOptions{})
		if err == nil {
			f = entry.File()
		}
		return err
	})
	return f, err
}

// MakeDir creates a directory and its missing parents. The error is of kind
// Conflict if the directory exists.
func (e *Engine) MakeDir(ctx context.Context, p sandbox.Principal, id, path string) error {
	return e.changeFile(ctx, p, id, path, "make directory", func(b *liveSandbox) error {
		return b.guest.MakeDir(ctx, request.Absolute(path), guestapi.FileOptions{})
	})
}

// useFile returns the sandbox of a file, and the function that ends its use.
func (e *Engine) useFile(ctx context.Context, p sandbox.Principal, id, path string) (*liveSandbox, func(), error) {
	if err := request.CheckPath("path", path); err != nil {
		return nil, nil, err
	}
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	release, err := b.use(ctx)
	return b, release, err
}

// doFile calls do for a file of a sandbox, which it keeps in use meanwhile.
func (e *Engine) doFile(ctx context.Context, p sandbox.Principal, id, path, op string, do func(*liveSandbox) error) error {
	b, release, err := e.useFile(ctx, p, id, path)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	defer release()
	if err := b.copy.In(ctx); err != nil {
		return sandbox.Wrap(b.Explain(ctx, err), op, "")
	}
	if err := do(b); err != nil {
		return sandbox.Wrap(b.fileError(ctx, err, path), op, "")
	}
	return nil
}

// changeFile is doFile for an operation that may change the workspace. The
// change is recorded, so that it is not attributed to a run.
func (e *Engine) changeFile(ctx context.Context, p sandbox.Principal, id, path, op string, do func(*liveSandbox) error) error {
	return e.doFile(ctx, p, id, path, op, func(b *liveSandbox) error {
		defer b.mount.Main().Changed()
		if err := do(b); err != nil {
			return err
		}
		return b.copy.Out(ctx)
	})
}

// fileError explains an error of the guest about a file.
func (b *liveSandbox) fileError(ctx context.Context, err error, path string) error {
	switch {
	case errors.Is(err, sandbox.NotFound):
		if of, ok := errors.AsType[*sandbox.Error](err); ok && of.Op != "" {
			err = of.Err // the caller names the operation
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "path: %s is not in the sandbox: %w", excerpt.Quote(path), err),
			"list the directory to see what is there")
	case errors.Is(err, sandbox.Unavailable):
		return b.Explain(ctx, err)
	}
	return err
}

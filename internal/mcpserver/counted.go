package mcpserver

import (
	"cmp"
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A countedEngine counts the content that it reads in the ledger of the call. It
// does not count reads outside of calls.
type countedEngine struct {
	Engine
	searches *fair.Pool
}

// ReadFile opens a file and limits the reader to the bytes that were counted.
func (e countedEngine) ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (io.ReadCloser, int64, error) {
	f, size, err := e.Engine.ReadFile(ctx, p, id, path, offset, length)
	if err != nil {
		return nil, 0, err
	}
	n := max(0, min(length, size-offset))
	if _, err := ledger.Of(ctx).Take(ctx, p, n); err != nil {
		f.Close()
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, n), f}, size, nil
}

// Output first counts the whole budget, and corrects the number after reading.
func (e countedEngine) Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error) {
	fix, err := ledger.Of(ctx).Take(ctx, p, int64(cmp.Or(budget, sandbox.DefaultOutputBytes)))
	if err != nil {
		return sandbox.Output{}, err
	}
	out, err := e.Engine.Output(ctx, p, runID, budget)
	fix(int64(len(out.Stdout) + len(out.Stderr)))
	return out, err
}

// ReadOutput counts one page.
func (e countedEngine) ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) ([]byte, int64, error) {
	if limit > 0 {
		if err := ledger.Of(ctx).Page(ctx, p, limit); err != nil {
			return nil, 0, err
		}
	}
	return e.Engine.ReadOutput(ctx, p, runID, stream, offset, limit)
}

// Results counts the results after reading, when their size is known. The pool of
// searches bounds the number of concurrent reads.
func (e countedEngine) Results(ctx context.Context, p sandbox.Principal, runID string) (res sandbox.Results, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		res, err = e.Engine.Results(ctx, p, runID)
		for _, r := range res.Results {
			for mime, value := range r.Data {
				size += int64(len(mime) + len(value))
			}
		}
		return size / ledger.AnswerCost, err // an answer includes only a small part of the results
	})
	return res, err
}

// fileCost is the approximate content in bytes of one entry of a list, without
// its names.
const fileCost = 256

// ListFiles counts the list after reading, as Results does.
func (e countedEngine) ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, more bool, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		files, more, err = e.Engine.ListFiles(ctx, p, id, path, depth)
		for _, f := range files {
			size += fileCost + int64(len(f.Path)+len(f.Target))
		}
		return size, err
	})
	return files, more, err
}

// GlobFiles counts the list as ListFiles does.
func (e countedEngine) GlobFiles(ctx context.Context, p sandbox.Principal, id, path, glob string, depth int) (l sandbox.Listing, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		l, err = e.Engine.GlobFiles(ctx, p, id, path, glob, depth)
		for _, f := range l.Files {
			size += fileCost + int64(len(f.Path)+len(f.Target))
		}
		return size, err
	})
	return l, err
}

// lineCost is the memory that a line of a search takes beside its text, in bytes.
const lineCost = 64

// SearchFiles counts the lines after reading, as Results does.
func (e countedEngine) SearchFiles(ctx context.Context, p sandbox.Principal, id string, r sandbox.SearchRequest) (f sandbox.Found, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		f, err = e.Engine.SearchFiles(ctx, p, id, r)
		for _, file := range f.Files {
			// The text of the answer has the path in each line.
			size += int64(len(file.Path))
			for _, line := range file.Lines {
				size += int64(len(line.Text) + 4*min(len(file.Path), maxShownPath) + lineCost)
			}
		}
		return size, err
	})
	return f, err
}

// Diff counts the text and the names after reading, as Results does.
func (e countedEngine) Diff(ctx context.Context, p sandbox.Principal, id string, r sandbox.DiffRequest) (d sandbox.Diff, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		d, err = e.Engine.Diff(ctx, p, id, r)
		for _, f := range d.Files {
			size += fileCost + int64(len(f.Path))
		}
		return size + int64(len(d.Text)), err
	})
	return d, err
}

// load reads content whose size is known only after reading, and then counts it.
func (e countedEngine) load(ctx context.Context, p sandbox.Principal, read func() (size int64, err error)) error {
	held := ledger.Of(ctx)
	if held == nil {
		_, err := read()
		return err
	}
	place, err := ledger.Acquire(ctx, e.searches, fair.Request{Principal: p, Units: 1})
	if err != nil {
		return err
	}
	defer place.Release()
	size, err := read()
	if err != nil {
		return err
	}
	_, err = held.Take(ctx, p, size)
	return err
}

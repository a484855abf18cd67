package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A ledger holds the memory of one request and of its answer: the request's from
// before it is handled, the answer's from before its content is read. The ledger
// of a request over HTTP ends with the request and the calls that it began. On SSE
// it ends when the answer has left, and on stdio it is that of one call. Methods
// of nil do nothing.
type ledger struct {
	shares *Shares

	mu    sync.Mutex
	users int // the request, and calls that it began
	holds []*fair.Hold
	pages map[*pagedCall]*fair.Hold // for what a call reads in pages, one after the other
}

// A pagedCall is one call of a request: the calls of a batch go on at the same time.
type pagedCall struct{ _ byte }

// ledgers are those of the requests over HTTP that are under way.
type ledgers struct {
	shares *Shares

	mu   sync.Mutex
	open map[string]*ledger
}

// requestHeader leads from a call to the ledger of its request: of a request,
// the SDK shows to handlers only the header. A client's own is replaced.
const requestHeader = "Glovebox-Request"

// openFor gives a request of so many calls and bytes a ledger, until end. It waits for
// the principal's share of the calls under way. The name is for requestHeader.
func (ls *ledgers) openFor(ctx context.Context, p sandbox.Principal, calls, size int) (name string, end func(), _ error) {
	hold, err := acquire(ctx, ls.shares.calls, fair.Request{Principal: p, Units: int64(calls)*callCost + int64(size)})
	if err != nil {
		return "", nil, err
	}
	l := &ledger{shares: ls.shares, users: 1, holds: []*fair.Hold{hold}}
	name = rand.Text()
	ls.mu.Lock()
	ls.open[name] = l
	ls.mu.Unlock()
	return name, sync.OnceFunc(func() {
		ls.mu.Lock()
		delete(ls.open, name)
		ls.mu.Unlock()
		l.leave()
	}), nil
}

// begin is openFor for a request over HTTP.
func (ls *ledgers) begin(r *http.Request, p sandbox.Principal, body []byte) (_ *http.Request, end func(), _ error) {
	name, end, err := ls.openFor(r.Context(), p, max(1, batchSize(body)), len(body))
	if err != nil {
		return nil, nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(requestHeader, name)
	return r, end, nil
}

type (
	ledgerKey struct{}
	pagesKey  struct{}
)

// enter adds a call to the ledger of its request, or gives it one of its own, and
// puts the ledger in the context. The caller calls leave at the end of the call.
func (ls *ledgers) enter(ctx context.Context, extra *mcp.RequestExtra) (_ context.Context, leave func()) {
	ctx = context.WithValue(ctx, pagesKey{}, new(pagedCall))
	var l *ledger
	if extra != nil {
		ls.mu.Lock()
		if l = ls.open[extra.Header.Get(requestHeader)]; l != nil {
			l.mu.Lock()
			l.users++
			l.mu.Unlock()
		}
		ls.mu.Unlock()
	}
	if l != nil {
		return context.WithValue(ctx, ledgerKey{}, l), l.leave
	}
	l = &ledger{shares: ls.shares, users: 1}
	return context.WithValue(ctx, ledgerKey{}, l), l.leave
}

func ledgerOf(ctx context.Context) *ledger {
	l, _ := ctx.Value(ledgerKey{}).(*ledger)
	return l
}

// leave ends a use of the ledger. The last gives all of it back.
func (l *ledger) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	for _, h := range l.holds {
		h.Release()
	}
	for _, h := range l.pages {
		h.Release()
	}
}

// take waits until the answer may hold so many bytes more of content. The caller
// may call fix once, with how many bytes there are in the end.
func (l *ledger) take(ctx context.Context, p sandbox.Principal, content int64) (fix func(content int64), _ error) {
	if l == nil {
		return func(int64) {}, nil
	}
	h, err := acquire(ctx, l.shares.answers, fair.Request{Principal: p, Units: content * answerCost})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return func(n int64) {
		if n < content {
			_ = h.Resize(n * answerCost) // fewer are always granted
		}
	}, nil
}

// grown takes for an answer what it grows by as JSON beyond answerCost, which
// reckons with plain text: JSON has up to six bytes for one. It is called when the
// answer is made and not yet encoded.
func (l *ledger) grown(ctx context.Context, p sandbox.Principal, res any) error {
	if l == nil {
		return nil
	}
	var growth int64
	switch res := res.(type) {
	case *mcp.CallToolResult:
		for _, c := range res.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				growth += textCopies * jsonGrowth(text.Text)
			}
		}
		if data, ok := res.StructuredContent.(json.RawMessage); ok {
			growth += structuredCopies * 5 * int64(bytes.Count(data, []byte(`\u`)))
		}
	case []*mcp.ResourceContents:
		for _, c := range res {
			growth += textCopies * jsonGrowth(c.Text)
		}
	}
	if growth < grownLeast {
		return nil
	}
	h, err := acquire(ctx, l.shares.answers, fair.Request{Principal: p, Units: growth})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return nil
}

// How many copies an answer has of a text as JSON, and of the structured content;
// measured. Growth below grownLeast is within what answerCost reckons.
const (
	textCopies       = 2
	structuredCopies = 3
	grownLeast       = 64 << 10
)

// jsonGrowth is by how many bytes a text is longer as JSON.
func jsonGrowth(text string) (n int64) {
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"' || b == '\\' || b == '\n' || b == '\r' || b == '\t':
			n++
		case b < ' ' || b == '<' || b == '>' || b == '&' || b == 0x7f:
			n += 5
		}
	}
	return n
}

// page is take for content of which each piece of a call replaces the one before.
func (l *ledger) page(ctx context.Context, p sandbox.Principal, content int64) error {
	if l == nil {
		return nil
	}
	of, _ := ctx.Value(pagesKey{}).(*pagedCall)
	l.mu.Lock()
	had := l.pages[of]
	l.mu.Unlock()
	if had != nil && had.Units() >= content*answerCost {
		return nil
	}
	h, err := acquire(ctx, l.shares.answers, fair.Request{Principal: p, Units: content * answerCost})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages[of].Release()
	if l.pages == nil {
		l.pages = map[*pagedCall]*fair.Hold{}
	}
	l.pages[of] = h
	return nil
}

// A countedEngine counts what it reads for calls in their ledgers. What is read
// for no call is not counted.
type countedEngine struct {
	Engine
	shares *Shares
}

// ReadFile opens a file, of which no more is read than is counted.
func (e countedEngine) ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (io.ReadCloser, int64, error) {
	f, size, err := e.Engine.ReadFile(ctx, p, id, path, offset, length)
	if err != nil {
		return nil, 0, err
	}
	n := max(0, min(length, size-offset))
	if _, err := ledgerOf(ctx).take(ctx, p, n); err != nil {
		f.Close()
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, n), f}, size, nil
}

// Output counts the budget before, and what there is after.
func (e countedEngine) Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error) {
	fix, err := ledgerOf(ctx).take(ctx, p, int64(orDefault(budget, sandbox.DefaultOutputBytes)))
	if err != nil {
		return sandbox.Output{}, err
	}
	out, err := e.Engine.Output(ctx, p, runID, budget)
	fix(int64(len(out.Stdout) + len(out.Stderr)))
	return out, err
}

// ReadOutput counts a page.
func (e countedEngine) ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) ([]byte, int64, error) {
	if limit > 0 {
		if err := ledgerOf(ctx).page(ctx, p, limit); err != nil {
			return nil, 0, err
		}
	}
	return e.Engine.ReadOutput(ctx, p, runID, stream, offset, limit)
}

// Results counts the results when their size is known. How many are read at one
// time is bounded.
func (e countedEngine) Results(ctx context.Context, p sandbox.Principal, runID string) (res sandbox.Results, err error) {
	err = e.load(ctx, p, func() (size int64, err error) {
		res, err = e.Engine.Results(ctx, p, runID)
		for _, r := range res.Results {
			for mime, value := range r.Data {
				size += int64(len(mime) + len(value))
			}
		}
		return size / answerCost, err // an answer has a part of them, which is small
	})
	return res, err
}

// fileCost is about the content of an answer for one entry of a list, beside its
// names.
const fileCost = 256

// ListFiles counts the list when its size is known, as Results does.
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

// load reads what has a size that is known only then.
func (e countedEngine) load(ctx context.Context, p sandbox.Principal, read func() (size int64, err error)) error {
	l := ledgerOf(ctx)
	if l == nil {
		_, err := read()
		return err
	}
	place, err := acquire(ctx, e.shares.searches, fair.Request{Principal: p, Units: 1})
	if err != nil {
		return err
	}
	defer place.Release()
	size, err := read()
	if err != nil {
		return err
	}
	_, err = l.take(ctx, p, size)
	return err
}

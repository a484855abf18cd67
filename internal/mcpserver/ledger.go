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
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A ledger holds the units of memory of one request. It takes the request's units
// before the request is handled, and the answer's before its content is read. The
// ledger of an HTTP request ends with the request and the calls that it began. On
// SSE it ends when the answer has been sent. On stdio each call has its own
// ledger. take, grown and page do nothing on a nil ledger.
type ledger struct {
	shares *Shares

	mu    sync.Mutex
	users int // the request and its calls
	holds []*fair.Hold
	pages map[*pagedCall]*fair.Hold // for content that a call reads page by page
}

// A pagedCall identifies one call of a request: the calls of a batch run
// concurrently.
type pagedCall struct{ _ byte }

// ledgers are the ledgers of the HTTP requests in progress, by name.
type ledgers struct {
	shares *Shares

	mu   sync.Mutex
	open map[string]*ledger
}

// requestHeader is the request header with the name of the request's ledger. The
// SDK passes only the header of a request on to handlers. A header that the
// client sent is overwritten.
const requestHeader = "Glovebox-Request"

// openFor makes a ledger for a request with that many calls, whose messages take
// size bytes of memory. The ledger lasts until end is called. openFor waits for the
// principal's share of the calls in progress. The name is the value for
// requestHeader.
func (ls *ledgers) openFor(ctx context.Context, p sandbox.Principal, calls, size int) (l *ledger, name string, end func(), _ error) {
	hold, err := acquire(ctx, ls.shares.calls, fair.Request{Principal: p, Units: int64(calls)*callCost + int64(size)})
	if err != nil {
		return nil, "", nil, err
	}
	l = &ledger{shares: ls.shares, users: 1, holds: []*fair.Hold{hold}}
	name = rand.Text()
	ls.mu.Lock()
	ls.open[name] = l
	ls.mu.Unlock()
	return l, name, sync.OnceFunc(func() {
		ls.mu.Lock()
		delete(ls.open, name)
		ls.mu.Unlock()
		l.leave()
	}), nil
}

// begin calls openFor for an HTTP request, and returns the request with
// requestHeader and the ledger.
func (ls *ledgers) begin(r *http.Request, p sandbox.Principal, env envelope, body []byte) (_ *http.Request, end func(), _ error) {
	l, name, end, err := ls.openFor(r.Context(), p, max(1, env.calls+env.notes), messageCost(body))
	if err != nil {
		return nil, nil, err
	}
	r = r.Clone(context.WithValue(r.Context(), requestKey{}, l))
	r.Header.Set(requestHeader, name)
	return r, end, nil
}

type (
	ledgerKey  struct{}
	requestKey struct{} // of the request's ledger: some handlers do not see its header
	pagesKey   struct{}
)

// enter adds a call to the ledger of its request, or makes a new ledger for the
// call. It puts the ledger into the context. The caller must call leave at the
// end of the call.
func (ls *ledgers) enter(ctx context.Context, extra *mcp.RequestExtra) (_ context.Context, leave func()) {
	ctx = context.WithValue(ctx, pagesKey{}, new(pagedCall))
	l, _ := ctx.Value(requestKey{}).(*ledger)
	if extra != nil {
		ls.mu.Lock()
		if named := ls.open[extra.Header.Get(requestHeader)]; named != nil {
			l = named
		}
		ls.mu.Unlock()
	}
	if !l.enter() {
		// The context of a session has the ledger of the request that opened it.
		l = &ledger{shares: ls.shares, users: 1}
	}
	return context.WithValue(ctx, ledgerKey{}, l), l.leave
}

// enter begins one use of the ledger. It returns false if the ledger has ended, and
// on nil.
func (l *ledger) enter() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		return false
	}
	l.users++
	return true
}

func ledgerOf(ctx context.Context) *ledger {
	l, _ := ctx.Value(ledgerKey{}).(*ledger)
	return l
}

// leave ends one use of the ledger. The last use releases all its memory.
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

// take waits until the answer may hold content more bytes. The caller may call
// fix once, with the real number of bytes; fix gives the rest back.
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
			_ = h.Resize(n * answerCost) // a decrease always succeeds
		}
	}, nil
}

// grown takes the memory that JSON needs beyond answerCost. answerCost assumes
// plain text, but JSON may take six bytes for one. Callers call it when the
// answer is complete and not encoded yet.
func (l *ledger) grown(ctx context.Context, p sandbox.Principal, res any) error {
	if l == nil {
		return nil
	}
	var growth int64
	if t, ok := res.(*task.Result); ok && t.Result != nil {
		res = t.Result
	}
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

// textCopies and structuredCopies are the numbers of JSON copies of a text and of
// the structured content in an answer; both were measured. Growth below
// grownLeast is within the estimate of answerCost.
const (
	textCopies       = 2
	structuredCopies = 3
	grownLeast       = 64 << 10
)

// jsonGrowth returns the number of additional bytes that a text needs as JSON.
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

// page is like take, for content that replaces the previous page of the same
// call.
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

// A countedEngine counts the content that it reads in the ledger of the call. It
// does not count reads outside of calls.
type countedEngine struct {
	Engine
	shares *Shares
}

// ReadFile opens a file and limits the reader to the bytes that were counted.
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

// Output first counts the whole budget, and corrects the number after reading.
func (e countedEngine) Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error) {
	fix, err := ledgerOf(ctx).take(ctx, p, int64(orDefault(budget, sandbox.DefaultOutputBytes)))
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
		if err := ledgerOf(ctx).page(ctx, p, limit); err != nil {
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
		return size / answerCost, err // an answer includes only a small part of the results
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

// load reads content whose size is known only after reading, and then counts it.
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

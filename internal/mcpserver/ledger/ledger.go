package ledger

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Ledger holds the units of memory of one request. It takes the request's units
// before the request is handled, and the answer's before its content is read. Take,
// Grow and Page do nothing on a nil Ledger. It is safe for concurrent use.
type Ledger struct {
	shares *Shares

	mu    sync.Mutex
	users int // the request and its calls
	holds []*fair.Hold
	pages map[*pagedCall]*fair.Hold // for content that a call reads page by page
}

// A pagedCall identifies one call of a request: the calls of a batch run
// concurrently.
type pagedCall struct{ _ byte }

// A Book has the ledgers of the HTTP requests in progress, by name. It is safe for
// concurrent use.
type Book struct {
	shares *Shares

	mu   sync.Mutex
	open map[string]*Ledger
}

// NewBook returns a book whose ledgers take units of shares.
func NewBook(shares *Shares) *Book { return &Book{shares: shares, open: map[string]*Ledger{}} }

// RequestHeader is the request header with the name of the request's ledger. The
// SDK passes only the header of a request on to handlers. A header that the
// client sent is overwritten.
const RequestHeader = "Glovebox-Request"

// Open makes a ledger for a request with that many calls, whose messages take size
// bytes of memory. The ledger lasts until end is called. Open waits for the
// principal's share of the calls in progress. The name is the value for
// [RequestHeader].
func (b *Book) Open(ctx context.Context, p sandbox.Principal, calls, size int) (name string, end func(), _ error) {
	_, name, end, err := b.openFor(ctx, p, calls, size)
	return name, end, err
}

func (b *Book) openFor(ctx context.Context, p sandbox.Principal, calls, size int) (l *Ledger, name string, end func(), _ error) {
	hold, err := Acquire(ctx, b.shares.Calls, fair.Request{Principal: p, Units: int64(calls)*callCost + int64(size)})
	if err != nil {
		return nil, "", nil, err
	}
	l = &Ledger{shares: b.shares, users: 1, holds: []*fair.Hold{hold}}
	name = rand.Text()
	b.mu.Lock()
	b.open[name] = l
	b.mu.Unlock()
	return l, name, sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.open, name)
		b.mu.Unlock()
		l.leave()
	}), nil
}

// Begin calls Open for an HTTP request, and returns the request with [RequestHeader]
// and the ledger.
func (b *Book) Begin(r *http.Request, p sandbox.Principal, calls, size int) (_ *http.Request, end func(), _ error) {
	l, name, end, err := b.openFor(r.Context(), p, calls, size)
	if err != nil {
		return nil, nil, err
	}
	r = r.Clone(context.WithValue(r.Context(), requestKey{}, l))
	r.Header.Set(RequestHeader, name)
	return r, end, nil
}

type (
	ledgerKey  struct{}
	requestKey struct{} // of the request's ledger: some handlers do not see its header
	pagesKey   struct{}
)

// Enter adds a call to the ledger of its request, whose headers may be nil, or makes
// a new ledger for the call. It puts the ledger into the context. The caller must
// call leave at the end of the call.
func (b *Book) Enter(ctx context.Context, header http.Header) (_ context.Context, leave func()) {
	ctx = context.WithValue(ctx, pagesKey{}, new(pagedCall))
	l, _ := ctx.Value(requestKey{}).(*Ledger)
	b.mu.Lock()
	if named := b.open[header.Get(RequestHeader)]; named != nil {
		l = named
	}
	b.mu.Unlock()
	if !l.enter() {
		// The context of a session has the ledger of the request that opened it.
		l = &Ledger{shares: b.shares, users: 1}
	}
	return context.WithValue(ctx, ledgerKey{}, l), l.leave
}

// Use begins one more use of the ledger of an HTTP request that [Book.Begin]
// returned, until end is called.
func Use(r *http.Request) (end func()) {
	l, _ := r.Context().Value(requestKey{}).(*Ledger)
	l.enter()
	return l.leave
}

// enter begins one use of the ledger. It returns false if the ledger has ended, and
// on nil.
func (l *Ledger) enter() bool {
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

// Of returns the ledger of the call with that context, or nil.
func Of(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ledgerKey{}).(*Ledger)
	return l
}

// leave ends one use of the ledger. The last use releases all its memory.
func (l *Ledger) leave() {
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

// Take waits until the answer may hold content more bytes. The caller may call
// fix once, with the real number of bytes; fix gives the rest back.
func (l *Ledger) Take(ctx context.Context, p sandbox.Principal, content int64) (fix func(content int64), _ error) {
	if l == nil {
		return func(int64) {}, nil
	}
	h, err := Acquire(ctx, l.shares.Answers, fair.Request{Principal: p, Units: content * AnswerCost})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return func(n int64) {
		if n < content {
			_ = h.Resize(n * AnswerCost) // a decrease always succeeds
		}
	}, nil
}

// Grow takes bytes of memory that an answer needs beyond AnswerCost.
func (l *Ledger) Grow(ctx context.Context, p sandbox.Principal, bytes int64) error {
	if l == nil {
		return nil
	}
	h, err := Acquire(ctx, l.shares.Answers, fair.Request{Principal: p, Units: bytes})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return nil
}

// Page is like Take, for content that replaces the previous page of the same
// call.
func (l *Ledger) Page(ctx context.Context, p sandbox.Principal, content int64) error {
	if l == nil {
		return nil
	}
	of, _ := ctx.Value(pagesKey{}).(*pagedCall)
	l.mu.Lock()
	had := l.pages[of]
	l.mu.Unlock()
	if had != nil && had.Units() >= content*AnswerCost {
		return nil
	}
	h, err := Acquire(ctx, l.shares.Answers, fair.Request{Principal: p, Units: content * AnswerCost})
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

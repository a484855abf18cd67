// Package trace tells where the time of a call goes: spans, as OpenTelemetry
// has them, which end up in a [Sink]. [Exporter] sends them to a collector,
// [Table] shows them to a person.
//
// A span belongs to the context that [Start] returns, and what is started below
// that is its child. Without a sink in the context, nothing is measured and a
// span is nil, on which every method does nothing: tracing costs a look-up where
// nobody asked for it.
//
// Spans have names, times and identifiers; never code, output or environment.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"
)

// A Span is something that took time. Its identifiers are lower-case hex.
type Span struct {
	Trace  string            `json:"trace"`
	ID     string            `json:"id"`
	Parent string            `json:"parent,omitempty"`
	Name   string            `json:"name"`
	Start  time.Time         `json:"start"`
	End    time.Time         `json:"end"`
	Attrs  map[string]string `json:"attrs,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// A Sink takes spans that have ended. It is called by many at once and must not
// wait.
type Sink func(Span)

// Active is a span that has not ended. Methods of a nil one do nothing.
type Active struct {
	sink Sink
	once sync.Once
	mu   sync.Mutex
	span Span
}

type key struct{}

// place is where in a trace a context is.
type place struct {
	sink          Sink
	trace, parent string
}

// With returns a context below which spans go to sink, in the trace of a caller
// that [Continue] knows, else in a new one. One that has a sink already, and one
// for a nil sink, stay as they are.
func With(ctx context.Context, sink Sink) context.Context {
	if _, ok := ctx.Value(key{}).(place); ok || sink == nil {
		return ctx
	}
	switch c, _ := ctx.Value(callerKey{}).(caller); {
	case c.trace == "":
		return context.WithValue(ctx, key{}, place{sink: sink, trace: newID(16)})
	case c.sampled:
		return context.WithValue(ctx, key{}, place{sink, c.trace, c.span})
	default:
		return ctx
	}
}

// Into returns dst with the place in the trace that src has.
func Into(dst, src context.Context) context.Context {
	if p, ok := src.Value(key{}).(place); ok {
		return context.WithValue(dst, key{}, p)
	}
	return dst
}

// On reports whether spans are wanted below ctx.
func On(ctx context.Context) bool {
	_, ok := ctx.Value(key{}).(place)
	return ok
}

// Start begins a span. The caller ends it.
func Start(ctx context.Context, name string) (context.Context, *Active) {
	p, ok := ctx.Value(key{}).(place)
	if !ok {
		return ctx, nil
	}
	a := &Active{sink: p.sink, span: Span{Trace: p.trace, ID: newID(8), Parent: p.parent, Name: name, Start: time.Now()}}
	return context.WithValue(ctx, key{}, place{p.sink, p.trace, a.span.ID}), a
}

// Do does f in a span of its own.
func Do(ctx context.Context, name string, f func(ctx context.Context) error) error {
	ctx, span := Start(ctx, name)
	err := f(ctx)
	span.End(err)
	return err
}

// Set notes something about a span.
func (a *Active) Set(name, value string) {
	if a == nil || value == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.span.Attrs == nil {
		a.span.Attrs = map[string]string{}
	}
	a.span.Attrs[name] = value
}

// End ends a span; err says that it failed. Only the first counts.
func (a *Active) End(err error) {
	if a == nil {
		return
	}
	a.once.Do(func() {
		a.mu.Lock()
		a.span.End = time.Now()
		if err != nil {
			a.span.Error = err.Error()
		}
		span := a.span
		a.mu.Unlock()
		a.sink(span)
	})
}

// Adopt takes spans that another process recorded, as children of ctx's where
// they have no parent of their own.
func Adopt(ctx context.Context, spans []Span) {
	p, ok := ctx.Value(key{}).(place)
	if !ok {
		return
	}
	for _, s := range spans {
		s.Trace = p.trace
		if s.Parent == "" {
			s.Parent = p.parent
		}
		p.sink(s)
	}
}

// A Recording is a sink that keeps spans.
type Recording struct {
	mu    sync.Mutex
	spans []Span
}

// Take is the Sink.
func (r *Recording) Take(s Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

// Spans returns what was taken so far.
func (r *Recording) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

func newID(size int) string {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

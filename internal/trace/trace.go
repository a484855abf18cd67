// Package trace measures where the time of a call goes. It records spans, as
// OpenTelemetry defines them, and passes them to a [Sink]. An [Exporter] sends
// them to a collector, and [Table] prints them.
//
// A span belongs to the context that [Start] returns. Spans that start below that
// context are its children. Without a sink in the context, Start returns a nil
// span, on which all methods do nothing. So disabled tracing costs only a look-up
// in the context.
//
// Spans have names, times and identifiers; never code, output or environment.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// A Span is a timed operation. Its identifiers are lower-case hexadecimal.
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

// A Sink receives spans that have ended. It is called concurrently and must not
// block.
type Sink func(Span)

// Active is a span that has not ended. Its methods do nothing on nil.
type Active struct {
	sink Sink
	once sync.Once
	mu   sync.Mutex
	span Span
}

type key struct{}

// place is the position of a context in a trace.
type place struct {
	sink          Sink
	trace, parent string
}

// With returns a context in which spans go to sink. They belong to the caller's
// trace if [Continue] set one, otherwise to a new trace. With returns ctx
// unchanged if it has a sink already, if sink is nil, or if the caller's trace is
// not recorded.
func With(ctx context.Context, sink Sink) context.Context {
	if _, ok := ctx.Value(key{}).(place); ok || sink == nil {
		return ctx
	}
	p := place{sink: sink}
	switch c, _ := ctx.Value(callerKey{}).(caller); {
	case c.trace == "":
		p.trace = newID(16)
	case c.sampled:
		p.trace, p.parent = c.trace, c.span
	default:
		return ctx
	}
	for w, _ := ctx.Value(watchKey{}).(*watch); w != nil; w = w.up {
		w.trace.Store(&p.trace)
	}
	return context.WithValue(ctx, key{}, p)
}

type watchKey struct{}

// watch is told of the traces that begin below a context.
type watch struct {
	up    *watch
	trace atomic.Pointer[string]
}

// Watch returns a context for [Recorded], which then also finds a trace that begins
// later, below that context.
func Watch(ctx context.Context) context.Context {
	up, _ := ctx.Value(watchKey{}).(*watch)
	return context.WithValue(ctx, watchKey{}, &watch{up: up})
}

// Recorded returns the identifier of the trace to which ctx belongs, or of the last one
// that began below it since [Watch]. It is "" if none is recorded.
func Recorded(ctx context.Context) string {
	if p, ok := ctx.Value(key{}).(place); ok {
		return p.trace
	}
	if w, ok := ctx.Value(watchKey{}).(*watch); ok {
		if id := w.trace.Load(); id != nil {
			return *id
		}
	}
	return ""
}

// Into returns dst with the position in the trace that src has.
func Into(dst, src context.Context) context.Context {
	if p, ok := src.Value(key{}).(place); ok {
		return context.WithValue(dst, key{}, p)
	}
	return dst
}

// On reports whether spans in ctx are recorded.
func On(ctx context.Context) bool {
	_, ok := ctx.Value(key{}).(place)
	return ok
}

// Start starts a span. The caller must call [Active.End].
func Start(ctx context.Context, name string) (context.Context, *Active) {
	p, ok := ctx.Value(key{}).(place)
	if !ok {
		return ctx, nil
	}
	a := &Active{sink: p.sink, span: Span{Trace: p.trace, ID: newID(8), Parent: p.parent, Name: name, Start: time.Now()}}
	return context.WithValue(ctx, key{}, place{p.sink, p.trace, a.span.ID}), a
}

// Do calls f in a new span.
func Do(ctx context.Context, name string, f func(ctx context.Context) error) error {
	ctx, span := Start(ctx, name)
	err := f(ctx)
	span.End(err)
	return err
}

// Set sets an attribute of a span. It ignores an empty value.
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

// End ends a span; a non-nil err marks it as failed. Only the first call has an
// effect.
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

// Adopt adds spans that another process recorded. Spans without a parent become
// children of ctx's span.
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

// A Recording keeps spans in memory. It is safe for concurrent use.
type Recording struct {
	mu    sync.Mutex
	spans []Span
}

// Take implements [Sink].
func (r *Recording) Take(s Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

// Spans returns the spans so far.
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

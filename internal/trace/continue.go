package trace

import (
	"context"
	"strings"
)

type callerKey struct{}

// caller is where in a trace of its own a caller is.
type caller struct {
	trace, span string
	sampled     bool
}

// Continue returns a context below which [With] begins no new trace, but goes on
// with that of a caller: traceparent is what it sent, as W3C's Trace Context has
// it. A caller that does not record its trace has nothing recorded here. What is
// no traceparent counts as none, and none is a trace of our own, also where ctx
// has a caller's.
func Continue(ctx context.Context, traceparent string) context.Context {
	c, ok := parse(traceparent)
	if _, had := ctx.Value(callerKey{}).(caller); !ok && !had {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// parse reads a traceparent: version, trace, span and flags. Versions to come
// may have more behind them.
func parse(text string) (c caller, ok bool) {
	const size = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(text) < size || len(text) > size && (text[:2] == "00" || text[size] != '-') {
		return c, false
	}
	f := strings.Split(text[:size], "-")
	if len(f) != 4 || len(f[0]) != 2 || len(f[1]) != 32 || len(f[2]) != 16 || f[0] == "ff" {
		return c, false
	}
	for _, digits := range f {
		if strings.Trim(digits, "0123456789abcdef") != "" {
			return c, false
		}
	}
	if strings.Trim(f[1], "0") == "" || strings.Trim(f[2], "0") == "" {
		return c, false
	}
	return caller{trace: f[1], span: f[2], sampled: strings.IndexByte("13579bdf", f[3][1]) >= 0}, true
}

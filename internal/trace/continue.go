package trace

import (
	"context"
	"strings"
)

type callerKey struct{}

// caller is the caller's position in its own trace.
type caller struct {
	trace, span string
	sampled     bool
}

// Continue returns a context in which [With] continues the caller's trace.
// traceparent is the caller's header in the format of W3C Trace Context. If the
// caller does not record its trace, no spans are recorded here. With an invalid
// or empty traceparent, With starts a new trace, even if ctx has another caller's
// position.
func Continue(ctx context.Context, traceparent string) context.Context {
	c, ok := parse(traceparent)
	if _, had := ctx.Value(callerKey{}).(caller); !ok && !had {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// parse reads a traceparent: version, trace, span and flags. Future versions may
// have more fields at the end.
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

package httpserver

import (
	"net/http"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/trace"
)

// TestTraceGoesOn has requests of callers that are in a trace of their own.
func TestTraceGoesOn(t *testing.T) {
	const theirs = "4bf92f3577b34da6a3ce929d0e0e4736"
	const header = "00-" + theirs + "-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		headers []string
		goesOn  bool
	}{
		"one":  {[]string{"Traceparent", header}, true},
		"none": {nil, false},
		"two":  {[]string{"Traceparent", header, "Traceparent", header}, false},
		"bad":  {[]string{"Traceparent", header + "-x"}, false},
	} {
		var r trace.Recording
		s := newServer(t, func(o *Options) {
			o.MCP = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				_, a := trace.Start(trace.With(req.Context(), r.Take), "run")
				a.End(nil)
			})
		})
		request(s, "POST", "/mcp", "", append(c.headers, "Authorization", good)...)
		spans := r.Spans()
		if len(spans) != 1 || (spans[0].Trace == theirs) != c.goesOn || (spans[0].Parent != "") != c.goesOn {
			t.Errorf("%s: %+v", name, spans)
		}
	}
}

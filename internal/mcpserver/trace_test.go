package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// tracing is an engine that records a span of each start, as the engine does.
type tracing struct {
	*fakeEngine
	spans trace.Recording
}

func (e *tracing) Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error) {
	ctx, span := trace.Start(trace.With(ctx, e.spans.Take), "run")
	defer span.End(nil)
	return e.fakeEngine.Start(ctx, p, r)
}

func newTracing(t *testing.T) (*Server, *tracing) {
	e := &tracing{}
	s, _ := newTestServer(t, func(o *Options) {
		e.fakeEngine = o.Engine.(*fakeEngine)
		o.Engine = e
	})
	return s, e
}

// parent returns a traceparent that is the n-th of a test.
func parent(n int) (traceparent, trace string) {
	trace = fmt.Sprintf("%032x", n)
	return "00-" + trace + "-00f067aa0ba902b7-01", trace
}

// wantTrace checks the last span.
func (e *tracing) wantTrace(t *testing.T, what, want string, count int) {
	t.Helper()
	spans := e.spans.Spans()
	if len(spans) != count {
		t.Fatalf("%s: %d spans, want %d", what, len(spans), count)
	}
	last := spans[count-1]
	if want == "" && last.Parent == "" {
		return
	}
	if last.Trace != want || last.Parent != "00f067aa0ba902b7" {
		t.Errorf("%s: %+v, want trace %q", what, last, want)
	}
}

// TestTraceGoesOn has callers that are in traces of their own, by each era of
// the protocol.
func TestTraceGoesOn(t *testing.T) {
	s, e := newTracing(t)
	url := serveHTTP(t, s)
	body, headers := modernCall("run_code", `{"code":"out hello"}`)
	one, oneTrace := parent(1)
	read := func(res *http.Response) {
		t.Helper()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%d, %v: %s", res.StatusCode, err, text)
		}
	}
	read(post(t, url+transport.StreamablePath, "alice", body, append(headers, "Traceparent", one)...))
	e.wantTrace(t, "a header", oneTrace, 1)
	read(post(t, url+transport.StreamablePath, "alice", body, headers...))
	e.wantTrace(t, "none", "", 2)
	read(post(t, url+transport.StreamablePath, "alice", body, append(headers, "Traceparent", "00-zz")...))
	e.wantTrace(t, "one that is none", "", 3)

	// A session's calls have each their own, or none.
	id := openSession(t, url, "alice")
	call := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"out x"}%s}}`
	two, twoTrace := parent(2)
	read(post(t, url+transport.StreamablePath, "alice", fmt.Sprintf(call, ""), sessionHeader, id, "Traceparent", two))
	e.wantTrace(t, "a header in a session", twoTrace, 4)
	read(post(t, url+transport.StreamablePath, "alice", fmt.Sprintf(call, ""), sessionHeader, id))
	e.wantTrace(t, "none after that", "", 5)
	read(post(t, url+transport.StreamablePath, "alice", fmt.Sprintf(call, `,"_meta":{"traceparent":"`+one+`"}`), sessionHeader, id, "Traceparent", two))
	e.wantTrace(t, "metadata of the call come first", oneTrace, 6)
	read(post(t, url+transport.StreamablePath, "alice", fmt.Sprintf(call, `,"_meta":{"traceparent":7}`), sessionHeader, id))
	e.wantTrace(t, "metadata that are none", "", 7)
}

// TestTraceOverStdio has a caller without headers.
func TestTraceOverStdio(t *testing.T) {
	s, e := newTracing(t)
	cs := serveStdio(t, s, nil)
	one, oneTrace := parent(1)
	_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "run_code", Arguments: args{"code": "out x"}, Meta: mcp.Meta{"traceparent": one},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.wantTrace(t, "metadata", oneTrace, 1)
}

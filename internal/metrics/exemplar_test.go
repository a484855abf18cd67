package metrics

import (
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/trace"
)

// TestExemplars: durations name the recorded trace that they belong to, in the format
// that has exemplars.
func TestExemplars(t *testing.T) {
	s := New("v1", "fake")
	const other = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00" // its caller does not record it
	unsampled := trace.With(trace.Continue(t.Context(), other), func(trace.Span) {})
	watched := trace.Watch(t.Context())
	sampled := trace.With(watched, func(trace.Span) {})
	s.SandboxStarted(unsampled, time.Second, nil)
	s.SandboxStarted(sampled, 20*time.Millisecond, nil)
	s.Claimed(sampled, time.Millisecond)
	s.Requested(watched, "/mcp", "POST", 200, time.Millisecond)
	s.ToolCalled(watched, "run_code", "", time.Millisecond)
	id := trace.Recorded(sampled)
	if id == "" || trace.Recorded(watched) != id || trace.Recorded(unsampled) != "" {
		t.Fatalf("recorded are %q, %q and %q", id, trace.Recorded(watched), trace.Recorded(unsampled))
	}
	scrape := func(accept string) string {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
		req.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, req)
		return answer.Body.String()
	}
	text := scrape("application/openmetrics-text; version=1.0.0")
	for _, name := range []string{"sandbox_start_seconds", "pool_claim_seconds", "http_request_seconds", "tool_call_seconds"} {
		found := regexp.MustCompile(`(?m)^glovebox_`+name+`_bucket\{.*\} \d+ # \{trace_id="(\w+)"\} [0-9.e-]+ `).FindAllStringSubmatch(text, -1)
		if len(found) != 1 || found[0][1] != id {
			t.Errorf("%s has the exemplars %q, want one of %s", name, found, id)
		}
	}
	if regexp.MustCompile("trace_id|" + id).MatchString(scrape("text/plain")) {
		t.Error("the plain format has exemplars, which break its readers")
	}
}

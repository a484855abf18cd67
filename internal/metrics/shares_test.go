package metrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/metrics"
)

// TestShares shows two resources, which different parts of the server have.
func TestShares(t *testing.T) {
	s := metrics.New("v", "fake")
	sessions, pulls := fair.New(fair.Options{Name: "MCP sessions", Total: 4}), fair.New(fair.Options{Name: "pulls", Total: 1})
	s.Shares(sessions.Stats)
	s.Shares(pulls.Stats)
	for range 2 {
		if _, err := sessions.Try(fair.Request{Principal: "alice", Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pulls.Try(fair.Request{Principal: "alice", Units: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := pulls.Try(fair.Request{Principal: "bob", Units: 1}); err == nil {
		t.Fatal("there are more pulls than the total")
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`glovebox_share_units{resource="MCP_sessions"} 4`, `glovebox_share_used{resource="MCP_sessions"} 2`,
		`glovebox_share_most{resource="MCP_sessions"} 2`, `glovebox_share_principals{resource="MCP_sessions"} 1`,
		`glovebox_share_waiting{resource="pulls"} 0`, `glovebox_share_waited_total{resource="pulls"} 1`,
		`glovebox_share_refused_total{resource="pulls"} 1`, `glovebox_share_evicted_total{resource="pulls"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(w.Body.String(), "alice") {
		t.Error("a label names a principal")
	}
	var none *metrics.Set
	none.Shares(pulls.Stats)
}

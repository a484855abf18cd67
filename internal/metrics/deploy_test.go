package metrics

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// names returns the names of the series of a set in which everything has happened.
func names(t *testing.T) map[string]bool {
	t.Helper()
	s := New("v1", "fake")
	s.SandboxStarted(t.Context(), 1, nil)
	s.RunRefused(sandbox.NotFound)
	s.RunEnded("python", sandbox.OK, 1, 1, 1)
	s.Connected(sandbox.Connection{Protocol: sandbox.ProtocolTCP})
	s.Connected(sandbox.Connection{Blocked: "rule"})
	s.Requested(t.Context(), "/mcp", "POST", 200, 1)
	s.ToolCalled(t.Context(), "run_code", "", 1)
	s.Shares(func() fair.Stats { return fair.Stats{} })
	s.Watch(func(context.Context) State { return State{Pool: &Pool{}, Workspaces: &Workspaces{}} })
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{"up": true} // Prometheus makes this one
	for _, f := range families {
		all[f.GetName()] = true
		if f.GetMetric()[0].GetHistogram() != nil {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[f.GetName()+suffix] = true
			}
		}
	}
	return all
}

// metricName matches the name of a metric in an expression.
var metricName = regexp.MustCompile(`\b(?:glovebox_\w+|up)\b`)

func checkExpression(t *testing.T, known map[string]bool, where, text string) {
	t.Helper()
	found := metricName.FindAllString(text, -1)
	if len(found) == 0 || strings.Count(text, "(") != strings.Count(text, ")") || strings.Count(text, "{") != strings.Count(text, "}") {
		t.Errorf("%s: %q has no metric, or a bracket is left open", where, text)
	}
	for _, name := range found {
		if !known[name] {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

// TestAlerts checks that the metrics of the rules exist.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := names(t)
	expressions := regexp.MustCompile(`(?m)^        expr: (.+)$`).FindAllStringSubmatch(string(text), -1)
	if alerts := strings.Count(string(text), "- alert: "); alerts < 5 || len(expressions) != alerts {
		t.Errorf("there are %d alerts and %d expressions", alerts, len(expressions))
	}
	for _, e := range expressions {
		checkExpression(t, known, e[1], e[1])
	}
}

// TestDashboard checks that the metrics of Grafana's dashboard exist.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	known, ids := names(t), map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("the panel %d %q has no target, no title, or the ID of another", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			checkExpression(t, known, p.Title, strings.ReplaceAll(q.Expr, "$__rate_interval", time.Minute.String()))
		}
	}
	if len(d.Panels) < 10 {
		t.Errorf("there are %d panels", len(d.Panels))
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`label_values\((\w+),`).FindStringSubmatch(v.Query); m != nil && !known[m[1]] {
			t.Errorf("the variable %s: there is no metric %s", v.Name, m[1])
		}
	}
}

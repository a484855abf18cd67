package promql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

const (
	interval = 15 * time.Second // of scrapes, and of the evaluation of alerts
	lasts    = 40 * time.Minute // longer than each alert's window and its time together
)

// epoch is the time of the first scrape.
var epoch = time.Unix(1_700_000_000, 0).UTC()

// A world is a server and what Prometheus scraped of it.
type world struct {
	set    *metrics.Set
	state  metrics.State
	down   bool // the server does not answer
	series map[string]*promql.Series
}

// newWorld returns the history of a server to which happens, between two scrapes, what
// the functions do.
func newWorld(t *testing.T, happen ...func(*world)) *world {
	t.Helper()
	w := &world{set: metrics.New("v1", "gvisor"), series: map[string]*promql.Series{}}
	w.state = metrics.State{
		Sandboxes: map[sandbox.State]int{sandbox.Running: 2}, MaxSandboxes: 10, Runs: 1,
		Workspaces: &metrics.Workspaces{Count: 1, Usage: sandbox.WorkspaceUsage{Bytes: 1 << 20}},
		Pool:       &metrics.Pool{Ready: 2, Done: 2, Target: 2, Max: 4},
	}
	w.set.Watch(func(context.Context) metrics.State {
		pool := *w.state.Pool
		state := w.state
		state.Pool = &pool
		return state
	})
	w.set.Shares(func() fair.Stats { return fair.Stats{Name: "memory", Total: 100, Used: 10} })
	for at := time.Duration(0); at <= lasts; at += interval {
		for _, f := range happen {
			f(w)
		}
		w.scrape(t, epoch.Add(at))
	}
	return w
}

// well is what happens to a server without faults.
func well(w *world) {
	w.set.SandboxStarted(context.Background(), 100*time.Millisecond, nil)
	w.set.ToolCalled(context.Background(), "run_code", "", 200*time.Millisecond)
	w.set.RunEnded("python", sandbox.OK, time.Second, 10, 0)
	w.set.Requested(context.Background(), "/mcp", "POST", 200, time.Second)
	w.set.Metered(usage.Amounts{CPUMillis: 500, SentBytes: 10, ReceivedBytes: 10})
	w.state.Pool.Hits++
}

// faults are what the alerts are for.
var faults = map[string]func(*world){
	"GloveboxDown":                func(w *world) { w.down = true },
	"GloveboxSandboxesDie":        func(w *world) { w.set.SandboxLost() },
	"GloveboxSandboxesDoNotStart": func(w *world) { w.set.SandboxStarted(context.Background(), 0, sandbox.Errorf(sandbox.Internal, "no")) },
	"GloveboxToolsFail":           func(w *world) { w.set.ToolCalled(context.Background(), "run_code", sandbox.Internal, time.Second) },
	"GloveboxFull":                func(w *world) { w.state.Queue = 3 },
	"GloveboxPoolTooSmall":        func(w *world) { w.state.Pool.Misses += 2 },
	"GloveboxSlow":                func(w *world) { w.set.SandboxStarted(context.Background(), 20*time.Second, nil) },
}

// blocked is a connection that the policy did not allow. No alert is for it.
func blocked(w *world) { w.set.Connected(sandbox.Connection{Blocked: "rule"}) }

// scrape reads the metrics as Prometheus does.
func (w *world) scrape(t *testing.T, at time.Time) {
	t.Helper()
	up := labels.FromStrings(labels.MetricName, "up", "job", "glovebox", "instance", "test")
	if w.down {
		w.add(up, at, 0)
		return
	}
	w.add(up, at, 1)
	answer := httptest.NewRecorder()
	w.set.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	p, err := textparse.New(answer.Body.Bytes(), answer.Header().Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		b.Set("job", "glovebox")
		b.Set("instance", "test")
		w.add(b.Labels(), at, value)
	}
}

func (w *world) add(l labels.Labels, at time.Time, value float64) {
	key := l.String()
	s := w.series[key]
	if s == nil {
		s = &promql.Series{Metric: l}
		w.series[key] = s
	}
	s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: value})
}

// Querier gives the series to the engine.
func (w *world) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &found{}
		for _, s := range w.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
				found.list = append(found.list, promql.NewStorageSeries(*s))
			}
		}
		slices.SortFunc(found.list, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return found
	}}, nil
}

// found is a set of series.
type found struct {
	list []storage.Series
	next int
}

func (f *found) Next() bool         { f.next++; return f.next <= len(f.list) }
func (f *found) At() storage.Series { return f.list[f.next-1] }
func (f *found) Err() error         { return nil }

func (f *found) Warnings() annotations.Annotations { return nil }

// query evaluates an expression from one time after the epoch to another.
func (w *world) query(t *testing.T, expression string, from, to time.Duration) promql.Matrix {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute})
	defer engine.Close()
	q, err := engine.NewRangeQuery(t.Context(), w, nil, expression, epoch.Add(from), epoch.Add(to), interval)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	defer q.Close()
	r := q.Exec(t.Context())
	m, err := r.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	// The caller reads it after Close.
	var kept promql.Matrix
	for _, s := range m {
		kept = append(kept, promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)})
	}
	return kept
}

// fires reports whether an alert fires at the end: one of its series is there in each
// evaluation of the time that it must last.
func (w *world) fires(t *testing.T, expression string, stays time.Duration) bool {
	t.Helper()
	steps := int(stays/interval) + 1
	return slices.ContainsFunc(w.query(t, expression, lasts-stays, lasts), func(s promql.Series) bool { return len(s.Floats) == steps })
}

// selects checks that each selector of an expression has a series.
func (w *world) selects(t *testing.T, where, expression string) {
	t.Helper()
	e, err := parser.ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok && len(w.query(t, v.String(), lasts, lasts)) == 0 {
			t.Errorf("%s: %s selects nothing", where, v)
		}
		return nil
	})
}

// everything is a world in which there are all series.
func everything(t *testing.T) *world {
	t.Helper()
	happen := []func(*world){well, blocked}
	for name, f := range faults {
		if name != "GloveboxDown" {
			happen = append(happen, f)
		}
	}
	return newWorld(t, happen...)
}

// TestAlerts evaluates each alert on a server without faults, and on one with the fault
// that it is for.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile("../../deploy/monitoring/alerts.yaml", false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	all, healthy, seen := everything(t), newWorld(t, well), map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			seen[r.Alert] = true
			fault := faults[r.Alert]
			if fault == nil {
				t.Errorf("there is no fault for %s", r.Alert)
				continue
			}
			stays := time.Duration(r.For)
			all.selects(t, r.Alert, r.Expr)
			if healthy.fires(t, r.Expr, stays) {
				t.Errorf("%s fires without a fault", r.Alert)
			}
			if !newWorld(t, well, fault).fires(t, r.Expr, stays) {
				t.Errorf("%s does not fire at its fault", r.Alert)
			}
		}
	}
	for name := range faults {
		if !seen[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestDashboard evaluates each panel of Grafana's dashboard.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	w := everything(t)
	values := []string{"$__rate_interval", "1m"}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query)
		if m == nil {
			t.Fatalf("the variable %s has the query %q", v.Name, v.Query)
		}
		rows := w.query(t, m[1], lasts, lasts)
		if len(rows) == 0 || rows[0].Metric.Get(m[2]) == "" {
			t.Errorf("the variable %s has no values", v.Name)
			continue
		}
		values = append(values, "$"+v.Name, rows[0].Metric.Get(m[2]))
	}
	replace := strings.NewReplacer(values...)
	expressions := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions++
			text := replace.Replace(target.Expr)
			w.selects(t, p.Title, text)
			if len(w.query(t, text, lasts, lasts)) == 0 {
				t.Errorf("the panel %q shows nothing: %s", p.Title, text)
			}
		}
	}
	if expressions < 10 {
		t.Errorf("there are %d expressions", expressions)
	}
}

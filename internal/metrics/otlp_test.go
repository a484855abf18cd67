package metrics

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// TestExport reads what a collector gets at the end of an exporter.
func TestExport(t *testing.T) {
	bodies := make(chan []byte, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/metrics" && r.Header.Get("Authorization") == "x" {
			bodies <- b
		}
	}))
	defer collector.Close()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=x"}
	to, err := trace.TargetFromEnv(func(name string) string { return env[name] }, "metrics", "v1")
	if err != nil {
		t.Fatal(err)
	}
	s := New("v1", "fake")
	s.ToolCalled(t.Context(), "run_code", "", 0)
	s.ToolCalled(t.Context(), "run_code", sandbox.Exhausted, 3e9)
	s.Export(to, "v1", slog.New(slog.DiscardHandler)).Close()
	var got struct {
		ResourceMetrics []struct {
			ScopeMetrics []struct {
				Metrics []struct {
					Name string
					Sum  struct {
						DataPoints []struct {
							AsDouble   float64
							Attributes []struct {
								Key   string
								Value struct{ StringValue string }
							}
						}
						IsMonotonic            bool
						AggregationTemporality int
					}
					Histogram struct {
						DataPoints []struct {
							Count          string
							Sum            float64
							BucketCounts   []string
							ExplicitBounds []float64
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(<-bodies, &got); err != nil {
		t.Fatal(err)
	}
	calls, found := map[string]float64{}, 0
	for _, m := range got.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		switch m.Name {
		case "glovebox_tool_calls_total":
			found++
			if !m.Sum.IsMonotonic || m.Sum.AggregationTemporality != 2 {
				t.Errorf("the sum is %+v", m.Sum)
			}
			for _, p := range m.Sum.DataPoints {
				for _, a := range p.Attributes {
					if a.Key == "result" {
						calls[a.Value.StringValue] = p.AsDouble
					}
				}
			}
		case "glovebox_tool_call_seconds":
			found++
			h := m.Histogram.DataPoints[0]
			if h.Count != "2" || h.Sum != 3 || len(h.BucketCounts) != len(h.ExplicitBounds)+1 || h.BucketCounts[0] != "1" || h.BucketCounts[10] != "1" {
				t.Errorf("the histogram is %+v", h)
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"ok": 1, "exhausted": 1}, calls); diff != "" || found != 2 {
		t.Errorf("%d metrics, -want +got\n%s", found, diff)
	}
	env["OTEL_METRICS_EXPORTER"] = "none"
	if to, err := trace.TargetFromEnv(func(name string) string { return env[name] }, "metrics", "v1"); to != nil || err != nil {
		t.Errorf("disabled: %v, %v", to, err)
	}
}

package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	var r Recording
	ctx := With(t.Context(), r.Take)
	ctx, outer := Start(ctx, "outer")
	outer.Set("sandbox", "sbx_1")
	inner, a := Start(With(ctx, func(Span) { t.Error("another sink took it") }), "inner")
	a.End(errors.New("it broke"))
	a.End(nil)
	_, b := Start(Into(context.Background(), inner), "below")
	b.End(nil)
	Adopt(ctx, []Span{{ID: "1", Name: "there"}, {ID: "2", Parent: "1", Name: "below it"}})
	outer.End(nil)
	parents := map[string]string{}
	ids := map[string]string{}
	for _, s := range r.Spans() {
		parents[s.Name], ids[s.Name] = s.Parent, s.ID
		if s.Trace != r.Spans()[0].Trace || len(s.Trace) != 32 {
			t.Errorf("%+v is of another trace", s)
		}
		if (s.Error != "") != (s.Name == "inner") {
			t.Errorf("%+v", s)
		}
	}
	if len(parents) != 5 || parents["inner"] != ids["outer"] || parents["below"] != ids["inner"] || parents["there"] != ids["outer"] || parents["below it"] != "1" || parents["outer"] != "" {
		t.Errorf("parents %v of %v", parents, ids)
	}
}

func TestOff(t *testing.T) {
	ctx, a := Start(With(t.Context(), nil), "x")
	a.Set("k", "v")
	a.End(nil)
	Adopt(ctx, []Span{{Name: "y"}})
	if a != nil || On(Into(ctx, ctx)) {
		t.Error("it is on")
	}
}

func TestTable(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ms := func(n int) time.Time { return at.Add(time.Duration(n) * time.Millisecond) }
	var b bytes.Buffer
	err := Table(&b, []Span{
		{ID: "3", Parent: "1", Name: "second", Start: ms(60), End: ms(100), Error: "x"},
		{ID: "2", Parent: "1", Name: "first", Start: ms(0), End: ms(50)},
		{ID: "1", Parent: "elsewhere", Name: "all", Start: ms(0), End: ms(100)},
	})
	if err != nil {
		t.Fatal(err)
	}
	bar := func(from, n int) string {
		return strings.Repeat(" ", from) + strings.Repeat("█", n) + strings.Repeat(" ", 32-from-n)
	}
	want := []string{
		"       0.0      100.0  " + bar(0, 32) + "  all",
		"       0.0       50.0  " + bar(0, 16) + "    first",
		"      60.0       40.0  " + bar(19, 13) + "    second (failed)",
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if got := strings.Join(lines[1:], "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if err := Table(&b, nil); err != nil {
		t.Error(err)
	}
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestExport(t *testing.T) {
	type request struct {
		path, key string
		body      []byte
	}
	got := make(chan request, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v, %v", err, r.Header)
		}
		got <- request{r.URL.Path, r.Header.Get("Api-Key"), body}
	}))
	defer server.Close()
	x, err := FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1",
		"OTEL_RESOURCE_ATTRIBUTES", "zone=here"), "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, a := Start(With(t.Context(), x.Take), "run")
	a.Set("verdict", "ok")
	a.End(errors.New("bad"))
	x.Close()
	r := <-got
	if r.path != "/v1/traces" || r.key != "a b" {
		t.Errorf("%+v", r)
	}
	var sent struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct{ Spans []otlpSpan }
		}
	}
	if err := json.Unmarshal(r.body, &sent); err != nil {
		t.Fatal(err)
	}
	resource := map[string]string{}
	for _, a := range sent.ResourceSpans[0].Resource.Attributes {
		resource[a.Key] = a.Value.String
	}
	if resource["service.name"] != "glovebox" || resource["service.version"] != "v1" || resource["zone"] != "here" {
		t.Errorf("resource %v", resource)
	}
	s := sent.ResourceSpans[0].ScopeSpans[0].Spans[0]
	if s.Name != "run" || len(s.Trace) != 32 || len(s.ID) != 16 || len(s.Start) < 19 || s.Status.Code != 2 || s.Attrs[0].Value.String != "ok" {
		t.Errorf("%+v", s)
	}
}

// TestExportToNobody does not keep anybody waiting, and ends.
func TestExportToNobody(t *testing.T) {
	var log bytes.Buffer
	x, err := FromEnv(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/x"), "v1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * maxQueued {
		x.Take(Span{Name: "x"})
	}
	x.Close()
	if n := strings.Count(log.String(), "\n"); n == 0 || n > 4 || !strings.Contains(log.String(), "dropped_spans") {
		t.Errorf("log:\n%s", &log)
	}
}

func TestFromEnv(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, e := range []func(string) string{
		env(), env(endpoint, "http://x", "OTEL_SDK_DISABLED", "true"), env(endpoint, "http://x", "OTEL_TRACES_EXPORTER", "none"),
	} {
		if x, err := FromEnv(e, "", nil); x != nil || err != nil {
			t.Errorf("%v, %v; want none", x, err)
		}
	}
	for _, e := range []func(string) string{
		env(endpoint, "127.0.0.1:4318"), env(endpoint, "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
		env(endpoint, "http://x", "OTEL_EXPORTER_OTLP_HEADERS", "secret"),
	} {
		if _, err := FromEnv(e, "", nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want an error without secrets", err)
		}
	}
}

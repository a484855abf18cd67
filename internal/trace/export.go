package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of an Exporter.
const (
	maxQueued   = 4096 // spans in the queue; more are dropped
	maxBatch    = 512
	exportEvery = 2 * time.Second
	exportTime  = 10 * time.Second
)

// An Exporter sends spans to an OpenTelemetry collector, in OTLP over HTTP with
// JSON. If spans arrive faster than it can send them, it drops some and logs
// their number.
type Exporter struct {
	endpoint string
	headers  map[string]string
	resource []attribute
	version  string
	log      *slog.Logger
	client   http.Client

	queue   chan Span
	dropped atomic.Int64
	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// FromEnv returns the exporter that OpenTelemetry's environment variables define,
// or nil if they define none. It reads OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, the HEADERS and PROTOCOL variables of both,
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. OTEL_SDK_DISABLED=true and
// OTEL_TRACES_EXPORTER=none disable it. The caller closes the exporter.
func FromEnv(getenv func(string) string, version string, log *slog.Logger) (*Exporter, error) {
	of := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	endpoint := of("ENDPOINT")
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q is not a URL like http://127.0.0.1:4318", endpoint)
	}
	if p := of("PROTOCOL"); p == "grpc" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not supported; use http/json and the collector's HTTP port, usually 4318")
	}
	if getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		u = u.JoinPath("v1", "traces")
	}
	headers, err := pairs(of("HEADERS"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	attrs, err := pairs(getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		attrs["service.name"] = name
	} else if attrs["service.name"] == "" {
		attrs["service.name"] = "glovebox"
	}
	attrs["service.version"] = version
	x := &Exporter{
		endpoint: u.String(), headers: headers, resource: attributes(attrs), version: version, log: log,
		queue: make(chan Span, maxQueued), closing: make(chan struct{}),
	}
	x.done.Go(x.run)
	return x, nil
}

// pairs reads a list such as a=1,b=2, with values in percent-encoding.
func pairs(text string) (map[string]string, error) {
	m := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("must be a list like name=value,name=value") // without the text, which may be secret
		}
		m[strings.TrimSpace(name)] = value
	}
	return m, nil
}

// Take implements [Sink]. It never blocks.
func (x *Exporter) Take(s Span) {
	select {
	case x.queue <- s:
	default:
		x.dropped.Add(1)
	}
}

// Close sends the queued spans and stops the exporter. Each request has a timeout
// of exportTime, and the first failed request ends Close.
func (x *Exporter) Close() {
	x.once.Do(func() { close(x.closing) })
	x.done.Wait()
}

// run sends spans until Close.
func (x *Exporter) run() {
	t := time.NewTicker(exportEvery)
	defer t.Stop()
	failed := false
	for over := false; !over; {
		select {
		case <-x.closing:
			over = true
		case <-t.C:
		}
		for {
			batch := x.batch()
			if len(batch) == 0 {
				break
			}
			err := x.send(batch)
			if err != nil && !failed {
				x.log.Warn("send traces; further errors are not logged", "to", x.endpoint, "error", err)
			}
			failed = err != nil
			if failed {
				break // later spans are queued or dropped
			}
		}
		if n := x.dropped.Swap(0); n > 0 {
			x.log.Warn("traces came faster than they could be sent", "dropped_spans", n)
		}
	}
	x.client.CloseIdleConnections()
}

func (x *Exporter) batch() (batch []Span) {
	for len(batch) < maxBatch {
		select {
		case s := <-x.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

// The types of a request in OTLP's JSON.
type (
	attribute struct {
		Key   string `json:"key"`
		Value struct {
			String string `json:"stringValue"`
		} `json:"value"`
	}
	otlpStatus struct {
		Code    int    `json:"code"` // 2: error
		Message string `json:"message,omitempty"`
	}
	otlpSpan struct {
		Trace  string      `json:"traceId"`
		ID     string      `json:"spanId"`
		Parent string      `json:"parentSpanId,omitempty"`
		Name   string      `json:"name"`
		Kind   int         `json:"kind"` // 1: internal
		Start  string      `json:"startTimeUnixNano"`
		End    string      `json:"endTimeUnixNano"`
		Attrs  []attribute `json:"attributes,omitempty"`
		Status *otlpStatus `json:"status,omitempty"`
	}
)

func attributes(m map[string]string) []attribute {
	list := make([]attribute, 0, len(m))
	for k, v := range m {
		a := attribute{Key: k}
		a.Value.String = v
		list = append(list, a)
	}
	return list
}

// encode returns a request's body.
func (x *Exporter) encode(batch []Span) ([]byte, error) {
	spans := make([]otlpSpan, 0, len(batch))
	for _, s := range batch {
		o := otlpSpan{
			Trace: s.Trace, ID: s.ID, Parent: s.Parent, Name: s.Name, Kind: 1, Attrs: attributes(s.Attrs),
			Start: strconv.FormatInt(s.Start.UnixNano(), 10), End: strconv.FormatInt(s.End.UnixNano(), 10),
		}
		if s.Error != "" {
			o.Status = &otlpStatus{2, s.Error}
		}
		spans = append(spans, o)
	}
	type scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	return json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": x.resource},
		"scopeSpans": []any{map[string]any{"scope": scope{"glovebox", x.version}, "spans": spans}},
	}}})
}

func (x *Exporter) send(batch []Span) error {
	body, err := x.encode(batch)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for k, v := range x.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := x.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", res.Status)
	}
	return nil
}

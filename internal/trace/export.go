package trace

import (
	"encoding/json"
	"log/slog"
	"strconv"
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
	to      *Target
	version string
	log     *slog.Logger

	queue   chan Span
	dropped atomic.Int64
	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// FromEnv returns the exporter that OpenTelemetry's environment variables define for
// traces, or nil if they define none; see [TargetFromEnv]. The caller closes it.
func FromEnv(getenv func(string) string, version string, log *slog.Logger) (*Exporter, error) {
	to, err := TargetFromEnv(getenv, "traces", version)
	if to == nil || err != nil {
		return nil, err
	}
	x := &Exporter{to: to, version: version, log: log, queue: make(chan Span, maxQueued), closing: make(chan struct{})}
	x.done.Go(x.run)
	return x, nil
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
				x.log.Warn("send traces; further errors are not logged", "to", x.to.url, "error", err)
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
	x.to.client.CloseIdleConnections()
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
		"resource":   x.to.Resource(),
		"scopeSpans": []any{map[string]any{"scope": scope{"glovebox", x.version}, "spans": spans}},
	}}})
}

func (x *Exporter) send(batch []Span) error {
	body, err := x.encode(batch)
	if err != nil {
		return err
	}
	return x.to.Post(body)
}

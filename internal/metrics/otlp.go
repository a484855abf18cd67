package metrics

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/glovebox-dev/glovebox/internal/trace"
)

// exportEvery is the usual interval of OpenTelemetry.
const exportEvery = time.Minute

// An Exporter sends the metrics of a set to a collector of OpenTelemetry, once a minute
// and at the end, with the names and values that Prometheus reads.
type Exporter struct {
	set     *Set
	to      *trace.Target
	version string
	log     *slog.Logger
	began   time.Time

	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// Export starts an exporter. The caller closes it.
func (s *Set) Export(to *trace.Target, version string, log *slog.Logger) *Exporter {
	x := &Exporter{set: s, to: to, version: version, log: log, began: time.Now(), closing: make(chan struct{})}
	x.done.Go(x.run)
	return x
}

// Close sends the metrics once more and stops the exporter.
func (x *Exporter) Close() {
	x.once.Do(func() { close(x.closing) })
	x.done.Wait()
}

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
		err := x.send()
		if err != nil && !failed {
			x.log.Warn("send metrics; further errors are not logged", "error", err)
		}
		failed = err != nil
	}
}

func (x *Exporter) send() error {
	families, err := x.set.registry.Gather()
	if err != nil {
		return err
	}
	body, err := x.encode(families, time.Now())
	if err != nil {
		return err
	}
	return x.to.Post(body)
}

// cumulative is OTLP's temporality of sums since the start.
const cumulative = 2

// A point is a data point in OTLP's JSON. Its integers are texts.
type point struct {
	Attributes any       `json:"attributes"`
	Start      string    `json:"startTimeUnixNano,omitempty"`
	Time       string    `json:"timeUnixNano"`
	Value      *float64  `json:"asDouble,omitempty"`
	Count      string    `json:"count,omitempty"`
	Sum        *float64  `json:"sum,omitempty"`
	Counts     []string  `json:"bucketCounts,omitempty"`
	Bounds     []float64 `json:"explicitBounds,omitempty"`
}

// encode returns a request's body.
func (x *Exporter) encode(families []*dto.MetricFamily, now time.Time) ([]byte, error) {
	type metric struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitempty"`
		Sum         map[string]any `json:"sum,omitempty"`
		Gauge       map[string]any `json:"gauge,omitempty"`
		Histogram   map[string]any `json:"histogram,omitempty"`
	}
	start, at := strconv.FormatInt(x.began.UnixNano(), 10), strconv.FormatInt(now.UnixNano(), 10)
	var list []metric
	for _, f := range families {
		var points []point
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			p := point{Attributes: trace.Attributes(labels), Start: start, Time: at}
			value := func(v float64) { p.Value = &v }
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				value(m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				p.Start = ""
				value(m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				sum := h.GetSampleSum()
				p.Count, p.Sum = strconv.FormatUint(h.GetSampleCount(), 10), &sum
				below := uint64(0)
				for _, b := range h.GetBucket() {
					p.Bounds = append(p.Bounds, b.GetUpperBound())
					p.Counts = append(p.Counts, strconv.FormatUint(b.GetCumulativeCount()-below, 10))
					below = b.GetCumulativeCount()
				}
				p.Counts = append(p.Counts, strconv.FormatUint(h.GetSampleCount()-below, 10))
			default: // summaries of the Go runtime have no equal
				continue
			}
			points = append(points, p)
		}
		if len(points) == 0 {
			continue
		}
		out := metric{Name: f.GetName(), Description: f.GetHelp()}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			out.Sum = map[string]any{"dataPoints": points, "aggregationTemporality": cumulative, "isMonotonic": true}
		case dto.MetricType_GAUGE:
			out.Gauge = map[string]any{"dataPoints": points}
		default:
			out.Histogram = map[string]any{"dataPoints": points, "aggregationTemporality": cumulative}
		}
		list = append(list, out)
	}
	scope := map[string]string{"name": "glovebox", "version": x.version}
	return json.Marshal(map[string]any{"resourceMetrics": []any{map[string]any{
		"resource":     x.to.Resource(),
		"scopeMetrics": []any{map[string]any{"scope": scope, "metrics": list}},
	}}})
}

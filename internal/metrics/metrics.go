// Package metrics counts events of a server and exposes them in the text format
// of Prometheus.
//
// The composition root makes one [Set] and passes it to the parts, which report
// events to it. When the set is read, it asks for the current state. Methods on a
// nil Set do nothing.
//
// No label names a principal, a sandbox, a run or a host. Each label has few
// values, which the program or its operator chose. Data from a client or from a
// program in a sandbox never creates a new value.
package metrics

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A Set holds all metrics of one server. It is safe for concurrent use.
type Set struct {
	registry *prometheus.Registry
	driver   string

	starts, refused, runs, blocked, connections, requests, tools *prometheus.CounterVec

	output, traffic *prometheus.CounterVec
	evicted, lost   prometheus.Counter

	metered []prometheus.Counter // by the order of usage.Amounts

	startTime, claimTime, queueTime prometheus.Histogram
	saves, wakes, packs             *prometheus.CounterVec
	cold                            prometheus.Gauge
	stoodTime, wakeTime             prometheus.Histogram
	snapshots                       snapshotMetrics
	runTime, requestTime, toolTime  *prometheus.HistogramVec
}

// Buckets of durations, in seconds.
var (
	startBuckets   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}
	runBuckets     = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60, 300, 600}
	claimBuckets   = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5}
	requestBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120}
)

// New returns a set for a server with that version and driver name.
func New(version, driver string) *Set {
	labels := prometheus.Labels{"driver": driver}
	counter := func(name, help string, names ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "glovebox_" + name, Help: help}, names)
	}
	histogram := func(name, help string, buckets []float64, labels prometheus.Labels) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "glovebox_" + name, Help: help, Buckets: buckets, ConstLabels: labels}
	}
	s := &Set{
		registry: prometheus.NewRegistry(), driver: driver,

		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "glovebox_sandbox_starts_total", Help: "Requests for a sandbox, by result: ok or the kind of error.", ConstLabels: labels,
		}, []string{"result"}),
		refused:     counter("runs_refused_total", "Runs that did not start, by the kind of error.", "kind"),
		runs:        counter("runs_total", "Runs that ended, by verdict.", "language", "verdict"),
		output:      counter("run_output_bytes_total", "Bytes that ended runs wrote.", "stream"),
		connections: counter("network_connections_total", "Allowed connections of sandboxes that have ended.", "protocol"),
		blocked:     counter("network_blocked_total", "Connections of sandboxes that were blocked or ended, by reason.", "reason"),
		traffic:     counter("network_bytes_total", "Bytes that sandboxes sent and received in ended connections.", "direction"),
		requests:    counter("http_requests_total", "Requests that were answered.", "path", "method", "code"),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "glovebox_evictions_total", Help: "Idle sandboxes that were stopped in favour of others.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "glovebox_sandboxes_lost_total", Help: "Sandboxes that were found dead.",
		}),
		startTime: prometheus.NewHistogram(histogram("sandbox_start_seconds", "Time from the request for a sandbox until it runs.", startBuckets, labels)),
		claimTime: prometheus.NewHistogram(histogram("pool_claim_seconds", "Time to claim a warm sandbox.", claimBuckets, nil)),
		queueTime: prometheus.NewHistogram(histogram("queue_wait_seconds", "Time of waiting for a place on a full server, with or without success.", startBuckets, nil)),
		runTime: prometheus.NewHistogramVec(histogram("run_seconds", "Time from the start of a run to its end.", runBuckets, nil),
			[]string{"language"}),
		requestTime: prometheus.NewHistogramVec(histogram("http_request_seconds", "Time from the head of a request to the end of its answer.", requestBuckets, nil),
			[]string{"path"}),
		tools: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "glovebox_tool_calls_total", Help: "Calls of MCP tools, by result: ok or the kind of error.", ConstLabels: labels,
		}, []string{"tool", "result"}),
		toolTime: prometheus.NewHistogramVec(histogram("tool_call_seconds", "Time of a call of an MCP tool.", requestBuckets, labels),
			[]string{"tool"}),
	}
	s.saves = counter("hibernations_total", "Sandboxes that were to be saved on disk, by result: ok or the kind of error.", "result")
	s.wakes = counter("wakes_total", "Sandboxes that were to be woken from disk, by result: ok or the kind of error.", "result")
	s.packs = counter("compressions_total", "Saved states that were to be compressed, by result: ok or the kind of error.", "result")
	s.cold = prometheus.NewGauge(prometheus.GaugeOpts{Name: "glovebox_saved_waiting", Help: "Saved states of this server that wait for compression, at the last sweep."})
	s.stoodTime = prometheus.NewHistogram(histogram("hibernation_stood_seconds", "Time that programs stood still until their state was saved on disk.", startBuckets, nil))
	s.wakeTime = prometheus.NewHistogram(histogram("wake_seconds", "Time to wake a sandbox from disk, with the wait for its turn.", startBuckets, nil))
	s.registry.MustRegister(s.saves, s.wakes, s.packs, s.cold, s.stoodTime, s.wakeTime)
	s.snapshots = newSnapshotMetrics()
	s.registry.MustRegister(s.snapshots.done, s.snapshots.times, s.snapshots.stood)
	s.registry.MustRegister(s.starts, s.refused, s.runs, s.output, s.connections, s.blocked, s.traffic, s.requests, s.evicted, s.lost,
		s.startTime, s.claimTime, s.queueTime, s.runTime, s.requestTime, s.tools, s.toolTime,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.registerUsage()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "glovebox_build_info", Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	s.registry.MustRegister(info)
	// Create these time series at the start, because alerts use them. If a
	// counter first appears with value 1, rate() does not see that increment.
	for _, result := range []string{"ok", string(sandbox.Exhausted), string(sandbox.Unavailable), string(sandbox.Internal)} {
		s.starts.WithLabelValues(result)
		s.saves.WithLabelValues(result)
		s.wakes.WithLabelValues(result)
		s.packs.WithLabelValues(result)
	}
	for _, stream := range []string{"stdout", "stderr"} {
		s.output.WithLabelValues(stream)
	}
	return s
}

// Handler returns the handler that exposes the set.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// timed records a duration, with the recorded trace of ctx as its exemplar.
func timed(ctx context.Context, o prometheus.Observer, took time.Duration) {
	e, ok := o.(prometheus.ExemplarObserver)
	if id := trace.Recorded(ctx); id != "" && ok {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": id})
		return
	}
	o.Observe(took.Seconds())
}

// SandboxStarted counts a request for a sandbox. If err is nil, it also records
// the duration took.
func (s *Set) SandboxStarted(ctx context.Context, took time.Duration, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.starts.WithLabelValues(string(sandbox.KindOf(err))).Inc()
		return
	}
	s.starts.WithLabelValues("ok").Inc()
	timed(ctx, s.startTime, took)
}

// SandboxLost counts a sandbox that was found dead.
func (s *Set) SandboxLost() {
	if s != nil {
		s.lost.Inc()
	}
}

// Evicted counts a sandbox that was stopped to make room.
func (s *Set) Evicted() {
	if s != nil {
		s.evicted.Inc()
	}
}

// Queued records a wait for a place.
func (s *Set) Queued(took time.Duration) {
	if s != nil {
		s.queueTime.Observe(took.Seconds())
	}
}

// Claimed records the claim of a sandbox from the pool.
func (s *Set) Claimed(ctx context.Context, took time.Duration) {
	if s != nil {
		timed(ctx, s.claimTime, took)
	}
}

// RunRefused counts a run that did not start.
func (s *Set) RunRefused(err error) {
	if s != nil {
		s.refused.WithLabelValues(string(sandbox.KindOf(err))).Inc()
	}
}

// RunEnded counts a run that ended. language is the name of a runner, or a fixed
// value for runs without one. stdout and stderr are the numbers of bytes written.
func (s *Set) RunEnded(language string, verdict sandbox.VerdictCode, took time.Duration, stdout, stderr int64) {
	if s == nil {
		return
	}
	s.runs.WithLabelValues(language, string(verdict)).Inc()
	s.runTime.WithLabelValues(language).Observe(took.Seconds())
	s.output.WithLabelValues("stdout").Add(float64(stdout))
	s.output.WithLabelValues("stderr").Add(float64(stderr))
}

// Connected counts a connection of a sandbox that has ended or was blocked.
func (s *Set) Connected(c sandbox.Connection) {
	if s == nil {
		return
	}
	if c.Blocked != "" {
		s.blocked.WithLabelValues(string(c.Blocked)).Inc()
	} else {
		s.connections.WithLabelValues(string(c.Protocol)).Inc()
	}
	s.traffic.WithLabelValues("sent").Add(float64(c.Sent))
	s.traffic.WithLabelValues("received").Add(float64(c.Received))
}

// methods are the HTTP methods that have their own label value.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// Requested counts a request that was answered. path must be one of the server's
// routes, never text from a client.
func (s *Set) Requested(ctx context.Context, path, method string, status int, took time.Duration) {
	if s == nil {
		return
	}
	if !slices.Contains(methods, method) {
		method = "other"
	}
	code := "other" // a program in a sandbox may answer with any status
	if http.StatusText(status) != "" {
		code = strconv.Itoa(status)
	}
	s.requests.WithLabelValues(path, method, code).Inc()
	timed(ctx, s.requestTime.WithLabelValues(path), took)
}

// ToolCalled counts a call of an MCP tool. tool is the name of a tool of the server, and
// kind that of the call's error, or "".
func (s *Set) ToolCalled(ctx context.Context, tool string, kind sandbox.Kind, took time.Duration) {
	if s == nil {
		return
	}
	result := "ok"
	if kind != "" {
		result = string(kind)
	}
	s.tools.WithLabelValues(tool, result).Inc()
	timed(ctx, s.toolTime.WithLabelValues(tool), took)
}

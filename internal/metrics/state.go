package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A State is the server's state at one moment.
type State struct {
	// Sandboxes is the number of this process's sandboxes by state. Sandboxes
	// that are being stopped count as stopped.
	Sandboxes map[sandbox.State]int
	// MaxSandboxes is the limit of sandboxes, Runs the number of active runs, and
	// Queue the number of callers that wait for a place.
	MaxSandboxes, Runs, Queue int
	// Workspaces counts all workspaces of the state directory, of all processes,
	// with their last measured sizes. Nil: not known.
	Workspaces *Workspaces
	// Pool is nil if there is no pool.
	Pool *Pool
}

// Workspaces is the number of workspaces and their total size.
type Workspaces struct {
	Count int
	Usage sandbox.WorkspaceUsage
}

// A Pool is the state of a pool, and its counters since its start.
type Pool struct {
	// Ready is the number of sandboxes that can be claimed, and Done the number
	// of them that are fully warmed up. Target is the desired number, and Max its
	// upper limit.
	Ready, Done, Target, Max int
	// Hits and Misses count claims with and without a ready sandbox. Unpooled
	// counts sandboxes of kinds that are never made in advance. Failures counts
	// sandboxes that could not be made in advance.
	Hits, Misses, Unpooled, Failures int
}

// stateTime bounds the collection of the state.
const stateTime = 5 * time.Second

// Watch registers look, which returns the state, and is called whenever the set
// is read. Watch must be called at most once.
func (s *Set) Watch(look func(ctx context.Context) State) {
	s.registry.MustRegister(collector{s.driver, look})
}

// A collector gets the state once for each read of the set.
type collector struct {
	driver string
	look   func(ctx context.Context) State
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("glovebox_"+name, help, labels, nil)
}

var (
	sandboxesDesc     = desc("sandboxes", "Sandboxes of this server by state; stopped are those that are being stopped.", "driver", "state")
	maxSandboxesDesc  = desc("sandboxes_max", "Sandboxes that this server may have.")
	runningDesc       = desc("runs_running", "Runs that go on.")
	queueDesc         = desc("queue_length", "Callers who wait for a place on a full server.")
	workspacesDesc    = desc("workspaces", "Workspaces in the state directory.")
	workspaceSizeDesc = desc("workspaces_bytes", "What they held together when they were last measured.")
	workspaceFileDesc = desc("workspaces_files", "Likewise, in files.")
	poolDesc          = desc("pool_sandboxes", "Sandboxes made ahead: ready, and brought on as far as they get (warm).", "state")
	poolTargetDesc    = desc("pool_target", "How many should be made ahead, as demand was.")
	poolMaxDesc       = desc("pool_max", "How many may be.")
	claimsDesc        = desc("pool_claims_total", "Sandboxes asked for: hit, miss (none was ready), unpooled (never made ahead).", "result")
	poolFailuresDesc  = desc("pool_failures_total", "Sandboxes that could not be made ahead.")
)

// Describe sends nothing, because the metrics depend on the server.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTime)
	defer cancel()
	st := c.look(ctx)
	send := func(kind prometheus.ValueType, d *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		send(prometheus.GaugeValue, d, int64(value), labels...)
	}
	count := func(d *prometheus.Desc, value int, labels ...string) {
		send(prometheus.CounterValue, d, int64(value), labels...)
	}
	for _, state := range []sandbox.State{sandbox.Starting, sandbox.Running, sandbox.Hibernated, sandbox.Stopped} {
		gauge(sandboxesDesc, st.Sandboxes[state], c.driver, string(state))
	}
	gauge(maxSandboxesDesc, st.MaxSandboxes)
	gauge(runningDesc, st.Runs)
	gauge(queueDesc, st.Queue)
	if w := st.Workspaces; w != nil {
		gauge(workspacesDesc, w.Count)
		send(prometheus.GaugeValue, workspaceSizeDesc, w.Usage.Bytes)
		send(prometheus.GaugeValue, workspaceFileDesc, w.Usage.Files)
	}
	if p := st.Pool; p != nil {
		gauge(poolDesc, p.Ready-p.Done, "ready")
		gauge(poolDesc, p.Done, "warm")
		gauge(poolTargetDesc, p.Target)
		gauge(poolMaxDesc, p.Max)
		count(claimsDesc, p.Hits, "hit")
		count(claimsDesc, p.Misses, "miss")
		count(claimsDesc, p.Unpooled, "unpooled")
		count(poolFailuresDesc, p.Failures)
	}
}

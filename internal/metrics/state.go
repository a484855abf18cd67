package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A State is what there is at a moment.
type State struct {
	// Sandboxes are those of this process by state; those that are being
	// stopped count as stopped.
	Sandboxes map[sandbox.State]int
	// MaxSandboxes is how many there may be, Runs counts those going on, and
	// Queue who waits for a place.
	MaxSandboxes, Runs, Queue int
	// Workspaces are those of the state directory, whichever process uses them,
	// with what they held when they were last measured; nil if it is not known.
	Workspaces *Workspaces
	// Pool is nil where there is none.
	Pool *Pool
}

// Workspaces are how many there are, and what they hold together.
type Workspaces struct {
	Count int
	Usage sandbox.WorkspaceUsage
}

// A Pool is what a pool has, and what it did since its start.
type Pool struct {
	// Ready are the sandboxes that can be claimed, Done those of them that are
	// as warm as they get, and Target is how many there should be, Max at most.
	Ready, Done, Target, Max int
	// Hits and Misses are claims that found a sandbox ready, and did not;
	// Unpooled are sandboxes of a kind that is never made ahead. Failures are
	// those that could not be made ahead.
	Hits, Misses, Unpooled, Failures int
}

// stateTime bounds what it takes to find out.
const stateTime = 5 * time.Second

// Watch has look asked for the state whenever the set is read. It is called
// once.
func (s *Set) Watch(look func(ctx context.Context) State) {
	s.registry.MustRegister(collector{s.driver, look})
}

// A collector asks for a state once for all that is read of it.
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

// Describe says nothing: what there is depends on the server.
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

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
	// Saved are the saved states of the state directory, of all processes. Nil: not
	// known.
	Saved *Saved
	// Snapshots are the snapshots of the state directory, of all processes. Nil: not
	// known.
	Snapshots *Snapshots
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
	// Started and Restored count the sandboxes that were made in advance: afresh, and
	// from a prototype. Prototypes is the number of prototypes, and PrototypeBytes their
	// size on the disk.
	Started, Restored, Prototypes int
	PrototypeBytes                int64
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
	sandboxesDesc     = desc("sandboxes", "Sandboxes of this server by state; stopped means that they are being stopped.", "driver", "state")
	maxSandboxesDesc  = desc("sandboxes_max", "Sandboxes that this server may have.")
	runningDesc       = desc("runs_running", "Runs in progress.")
	queueDesc         = desc("queue_length", "Callers who wait for a place on a full server.")
	workspacesDesc    = desc("workspaces", "Workspaces in the state directory.")
	workspaceSizeDesc = desc("workspaces_bytes", "Bytes in all workspaces at their last measurement.")
	workspaceFileDesc = desc("workspaces_files", "Files in all workspaces at their last measurement.")
	savedDesc         = desc("saved_sandboxes", "Sandboxes of the state directory that are saved on disk.")
	savedSizeDesc     = desc("saved_sandboxes_bytes", "Bytes of all saved sandboxes.")
	savedAgeDesc      = desc("saved_sandboxes_oldest_seconds", "Time since the first of the saved sandboxes was saved.")
	snapshotsDesc     = desc("snapshots", "Snapshots of the state directory, by state: making, kept, or lost.", "state")
	snapshotSizeDesc  = desc("snapshots_bytes", "Bytes of all snapshots.")
	snapshotAgeDesc   = desc("snapshots_oldest_seconds", "Time since the first of the snapshots was taken.")
	poolDesc          = desc("pool_sandboxes", "Sandboxes of the pool that can be claimed: ready, or fully prepared (warm).", "state")
	poolTargetDesc    = desc("pool_target", "Number of sandboxes that the pool aims for, by recent demand.")
	poolMaxDesc       = desc("pool_max", "Largest number of sandboxes in the pool.")
	claimsDesc        = desc("pool_claims_total", "Requests for a sandbox: hit, miss (none was ready), unpooled (the pool does not make such sandboxes).", "result")
	poolMadeDesc      = desc("pool_made_total", "Sandboxes that the pool made: started, or restored from the snapshot of one that was ready.", "how")
	prototypesDesc    = desc("pool_prototypes", "Snapshots of ready sandboxes, from which the pool makes others.")
	prototypeSizeDesc = desc("pool_prototypes_bytes", "Bytes of these snapshots.")
	poolFailuresDesc  = desc("pool_failures_total", "Sandboxes that the pool could not make.")
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
	if v := st.Saved; v != nil {
		gauge(savedDesc, v.Count)
		send(prometheus.GaugeValue, savedSizeDesc, v.Bytes)
		send(prometheus.GaugeValue, savedAgeDesc, int64(v.Age.Seconds()))
	}
	if v := st.Snapshots; v != nil {
		for _, state := range []sandbox.SnapshotState{sandbox.SnapshotMaking, sandbox.SnapshotKept, sandbox.SnapshotLost} {
			gauge(snapshotsDesc, v.Counts[state], string(state))
		}
		send(prometheus.GaugeValue, snapshotSizeDesc, v.Bytes)
		send(prometheus.GaugeValue, snapshotAgeDesc, int64(v.Age.Seconds()))
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
		count(poolMadeDesc, p.Started, "started")
		count(poolMadeDesc, p.Restored, "restored")
		gauge(prototypesDesc, p.Prototypes)
		send(prometheus.GaugeValue, prototypeSizeDesc, p.PrototypeBytes)
	}
}

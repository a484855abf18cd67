package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A SnapshotAction is what was done with a snapshot.
type SnapshotAction string

// The actions. A fork takes a snapshot, which counts too, and a run that is undone counts
// as both of the others.
const (
	SnapshotTaken      SnapshotAction = "take"
	SnapshotForked     SnapshotAction = "fork"
	SnapshotRolledBack SnapshotAction = "rollback"
)

// snapshotMetrics count what is done with snapshots.
type snapshotMetrics struct {
	done  *prometheus.CounterVec   // by action and result
	times *prometheus.HistogramVec // by action
	stood prometheus.Histogram
}

func newSnapshotMetrics() snapshotMetrics {
	m := snapshotMetrics{
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "glovebox_snapshot_actions_total", Help: "Snapshots that were to be taken, forks and rollbacks, by result: ok or the kind of error.",
		}, []string{"action", "result"}),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "glovebox_snapshot_action_seconds", Help: "Time to take a snapshot, to fork a sandbox with all copies, and to roll one back.", Buckets: startBuckets,
		}, []string{"action"}),
		stood: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "glovebox_snapshot_stood_seconds", Help: "Time that programs stood still while a snapshot was taken.", Buckets: startBuckets,
		}),
	}
	for _, action := range []SnapshotAction{SnapshotTaken, SnapshotForked, SnapshotRolledBack} {
		for _, result := range []string{"ok", string(sandbox.Exhausted), string(sandbox.Unavailable), string(sandbox.Internal)} {
			m.done.WithLabelValues(string(action), result)
		}
		m.times.WithLabelValues(string(action))
	}
	return m
}

// SnapshotDone counts an action. took is its duration, if err is nil.
func (s *Set) SnapshotDone(a SnapshotAction, took time.Duration, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.snapshots.done.WithLabelValues(string(a), string(sandbox.KindOf(err))).Inc()
		return
	}
	s.snapshots.done.WithLabelValues(string(a), "ok").Inc()
	s.snapshots.times.WithLabelValues(string(a)).Observe(took.Seconds())
}

// SnapshotStood records how long the programs of a sandbox stood still for a snapshot.
func (s *Set) SnapshotStood(stood time.Duration) {
	if s != nil {
		s.snapshots.stood.Observe(stood.Seconds())
	}
}

// Snapshots are the snapshots of the state directory.
type Snapshots struct {
	// Counts is their number by state.
	Counts map[sandbox.SnapshotState]int
	Bytes  int64
	// Age is that of the oldest.
	Age time.Duration
}

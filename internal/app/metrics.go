package app

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// state returns the current values for the metrics' gauges.
func (s *System) state(ctx context.Context) metrics.State {
	of := s.Engine.Stats()
	st := metrics.State{
		Sandboxes: of.Sandboxes, MaxSandboxes: s.opts.Config.Sandbox.Count, Runs: of.Runs, Queue: of.Waiting,
	}
	count, usage, err := s.store.WorkspaceTotals(ctx)
	if err != nil {
		s.log.Error("count workspaces", "error", err)
	} else {
		st.Workspaces = &metrics.Workspaces{Count: count, Usage: usage}
	}
	if list, err := s.store.SavedStates(ctx); err != nil {
		s.log.Error("count saved states", "error", err)
	} else {
		st.Saved = &metrics.Saved{}
		for _, v := range list {
			st.Saved.Count, st.Saved.Bytes = st.Saved.Count+v.Count, st.Saved.Bytes+v.Bytes
			st.Saved.Age = max(st.Saved.Age, time.Since(v.Oldest))
		}
	}
	if list, err := s.store.SnapshotStates(ctx); err != nil {
		s.log.Error("count snapshots", "error", err)
	} else {
		st.Snapshots = &metrics.Snapshots{Counts: map[sandbox.SnapshotState]int{}}
		for _, v := range list {
			st.Snapshots.Counts[v.State] += v.Count
			st.Snapshots.Bytes += v.Bytes
			st.Snapshots.Age = max(st.Snapshots.Age, time.Since(v.Oldest))
		}
	}
	if s.warmer != nil {
		p := s.warmer.Stats()
		st.Pool = &metrics.Pool{
			Ready: p.Ready, Done: p.Done, Target: p.Target, Max: p.Max,
			Hits: p.Hits, Misses: p.Misses, Unpooled: p.Unpooled, Failures: p.Failures,
			Started: p.Started, Restored: p.Restored, Prototypes: p.Prototypes, PrototypeBytes: p.PrototypeBytes,
		}
	}
	return st
}

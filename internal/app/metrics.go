package app

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/metrics"
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
	if s.warmer != nil {
		p := s.warmer.Stats()
		st.Pool = &metrics.Pool{
			Ready: p.Ready, Done: p.Done, Target: p.Target, Max: p.Max,
			Hits: p.Hits, Misses: p.Misses, Unpooled: p.Unpooled, Failures: p.Failures,
		}
	}
	return st
}

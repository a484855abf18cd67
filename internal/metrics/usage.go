package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/usage"
)

// registerUsage makes the counters of what all principals used. They have no label:
// GET /api/usage and glovebox usage say who used it.
func (s *Set) registerUsage() {
	for _, c := range []struct{ name, help string }{
		{"sandboxes", "Sandboxes that started."},
		{"sandbox_seconds", "Time for which sandboxes existed."},
		{"memory_byte_seconds", "Memory limits of sandboxes, multiplied by their time."},
		{"cpu_seconds", "CPU time of sandboxes."},
		{"runs", "Runs that ended, with those of sandboxes that ended."},
		{"run_seconds", "Time of runs that ended."},
		{"sent_bytes", "Bytes that sandboxes sent."},
		{"received_bytes", "Bytes that sandboxes received."},
		{"storage_byte_seconds", "Sizes of workspaces, multiplied by their time."},
	} {
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "glovebox_usage_" + c.name + "_total", Help: c.help})
		s.metered = append(s.metered, counter)
		s.registry.MustRegister(counter)
	}
}

// Metered counts amounts that are recorded.
func (s *Set) Metered(a usage.Amounts) {
	if s == nil {
		return
	}
	units := []float64{1, 1e-3, 1024, 1e-3, 1, 1e-3, 1, 1, 1024}
	for i, v := range a.Values() {
		s.metered[i].Add(float64(*v) * units[i])
	}
}
